"""Grafana dashboards and Prometheus rules, written from code: panels and rules are values, files are rendered.

`outrider dashboards --out DIR` writes what `files.render` returns; k8s/observability holds the result.
"""
