"""The papers' networks on one Linux machine: namespaces as hosts, bridges as switches, links with a real limit."""
