# shellcheck shell=bash
# A bare machine, for .ci/run: a copy of this checkout in which an ordinary user runs commands. He has a home of his own,
# and on his PATH are the commands of Debian's essential packages, `make` and Python, whatever else is installed: no
# Slurm, munge, Apptainer, iproute2, compiler or `which`, and no way into namespaces. As root, in the checkout:
#
#   bare_machine        makes it: the copy is $BARE/checkout
#   bare COMMAND ...    runs a command in the copy; fails where that fails or leaves processes behind
#   end_bare            ends what still runs there, and removes user and files

BARE=
NOT_THERE="which unshare nsenter setpriv su runuser mount umount" # nor what makes another user or sees another system

bare_machine() {
    BARE="$(mktemp -d /tmp/bare.XXXXXX)"
    BARE_USER="bare-$$"
    chmod 755 "$BARE"
    mkdir "$BARE"/{bin,tmp,checkout}
    useradd --create-home --home-dir "$BARE/home" --shell /bin/sh "$BARE_USER"
    _commands
    _python
    # The checkout as git sees it: what it ignores stays here.
    git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from=- --ignore-failed-read |
        tar --extract --no-same-owner --directory "$BARE/checkout"
    _settings
    chown -R "$BARE_USER:" "$BARE"/{home,tmp,checkout}
}

bare() {
    local status=0
    (cd "$BARE/checkout" && exec setpriv --reuid "$BARE_USER" --regid "$BARE_USER" --clear-groups --no-new-privs \
        env -i HOME="$BARE/home" USER="$BARE_USER" LOGNAME="$BARE_USER" TMPDIR="$BARE/tmp" PATH="$BARE/bin" \
        "${TOLD[@]}" "$@") || status=$?
    [ "$status" -ne 0 ] || _nothing_runs
    return "$status"
}

end_bare() {
    [ -n "$BARE" ] || return 0
    local process
    for process in $(_processes); do
        kill -KILL "$process" 2>/dev/null || true
    done
    userdel "$BARE_USER" || true
    rm -rf "$BARE"
    BARE=
}

_commands() {
    local file
    dpkg-query --show --showformat '${Essential} ${Package}\n' | sed -n 's/^yes //p' | xargs dpkg --listfiles make mawk |
        grep -E '^(/usr)?/bin/[^/]+$' | while read -r file; do
        [[ " $NOT_THERE " == *" ${file##*/} "* ]] || ln -sf "$file" "$BARE/bin/"
    done
    ln -s mawk "$BARE/bin/awk"
}

_python() { # the first that is new enough and that a user may run: root's own may lie where only root may look
    local python
    while read -r python; do
        if setpriv --reuid "$BARE_USER" --regid "$BARE_USER" --clear-groups "$python" -c \
            'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '#!/bin/sh\nexec %q "$@"\n' "$python" >"$BARE/bin/python3"
            chmod 755 "$BARE/bin/python3"
            return
        fi
    done < <(type -ap python3 python3.{13,12,11})
    echo "no Python 3.11 or newer with venv that an ordinary user may run: apt-get install python3 python3-venv" >&2
    return 1
}

_settings() { # where packages come from, as root is told, and the third-party logs
    local name file
    TOLD=()
    for name in $(compgen -e | grep -E '^(PIP_.*|SSL_CERT_(FILE|DIR)|.*_CA_BUNDLE|[a-z]+_proxy|[A-Z]+_PROXY)$'); do
        TOLD+=("$name=${!name}")
    done
    for file in .config/pip/pip.conf .pip/pip.conf; do
        [ ! -f "$HOME/$file" ] || install -D --mode 600 "$HOME/$file" "$BARE/home/$file"
    done
    if [ -n "${GRADSYNC_EXTERNAL_DATA:-}" ]; then
        cp -r "$GRADSYNC_EXTERNAL_DATA" "$BARE/data"
        chmod -R a+rX "$BARE/data"
        TOLD+=("GRADSYNC_EXTERNAL_DATA=$BARE/data")
    fi
}

_processes() { find /proc -maxdepth 1 -name '[0-9]*' -user "$BARE_USER" -printf '%f\n' 2>/dev/null || true; }

_nothing_runs() { # what is ending may take a while
    local process
    for _ in {1..900}; do
        [ -n "$(_processes)" ] || return 0
        sleep 0.2
    done
    echo "left running:" >&2
    for process in $(_processes); do
        tr '\0' ' ' <"/proc/$process/cmdline" >&2 && echo >&2
    done
    return 1
}
