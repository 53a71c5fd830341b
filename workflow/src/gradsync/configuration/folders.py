"""The folders of data that a configuration names: jobs in an image must see them, wherever they lie."""

from __future__ import annotations

from gradsync.configuration.settings import Settings


def named(settings: Settings) -> list[str]:
    """Every folder that a job reads data from or keeps copies of it in, each once, in order of the configuration."""
    folders = [
        settings.external_data,
        *(folder for launch in settings.training for folder in (launch.data_folder, launch.data_cache_folder)),
        *(launch.data_folder for launch in settings.elastic),
        settings.loading.data_folder,
    ]
    return list(dict.fromkeys(folder for folder in folders if folder))
