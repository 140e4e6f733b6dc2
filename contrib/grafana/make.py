#!/usr/bin/env python3
"""Writes stentor.json, the Grafana dashboard: rows of panels out of the table below. Run it after a change; a test holds the
metric names of the dashboard against those that the server gives."""

import json
import pathlib

RATE = "[$__rate_interval]"

# Title, unit, and the queries with their legends.
ROWS = [
    ("Mail", [
        ("Deliveries per second", "reqps", [
            (f'sum(rate(stentor_attempt_recipients_total{{instance=~"$instance"}}{RATE})) by (result)', "{{result}}"),
            (f'rate(stentor_connect_failures_total{{instance=~"$instance"}}{RATE})', "no connection")]),
        ("Accepted per second", "reqps", [
            (f'rate(stentor_messages_accepted_total{{instance=~"$instance"}}{RATE})', "messages"),
            (f'rate(stentor_recipients_acknowledged_total{{instance=~"$instance"}}{RATE})', "recipients")]),
        ("What became of recipients, per second", "reqps", [
            (f'sum(rate(stentor_recipients_total{{instance=~"$instance"}}{RATE})) by (outcome)', "{{outcome}}")]),
        ("Refusals per second", "reqps", [
            (f'sum(rate(stentor_refused_total{{instance=~"$instance"}}{RATE})) by (code, dsn)', "{{code}} {{dsn}}")]),
    ]),
    ("Queue", [
        ("Pending", "short", [
            ('stentor_queue_recipients{instance=~"$instance"}', "recipients, {{class}}"),
            ('stentor_queue_messages{instance=~"$instance"}', "messages"),
            ('stentor_queue_held_messages{instance=~"$instance"}', "held")]),
        ("Oldest message", "s", [('stentor_queue_oldest_age_seconds{instance=~"$instance"}', "age")]),
        ("Sites with most pending", "short", [
            ('stentor_site_pending_recipients{instance=~"$instance"}', "{{site}}")]),
        ("Waiting for something", "short", [
            ('stentor_sites_waiting{instance=~"$instance"}', "sites with mail"),
            ('stentor_sites_in_line{instance=~"$instance"}', "sites in line for a connection"),
            ('stentor_lookups_waiting{instance=~"$instance"}', "lookups"),
            ('stentor_clocks{instance=~"$instance"}', "clocks")]),
    ]),
    ("Times", [
        ("Attempts", "s", [
            (f'histogram_quantile({q}, sum(rate(stentor_attempt_duration_seconds_bucket{{instance=~"$instance"}}{RATE})) by (le))', f"{q}")
            for q in (0.5, 0.95, 0.99)]),
        ("Wait for 250", "s", [
            (f'histogram_quantile({q}, sum(rate(stentor_commit_wait_seconds_bucket{{instance=~"$instance"}}{RATE})) by (le))', f"{q}")
            for q in (0.5, 0.95, 0.99)]),
        ("Sync", "s", [
            (f'histogram_quantile({q}, sum(rate(stentor_sync_duration_seconds_bucket{{instance=~"$instance"}}{RATE})) by (le))', f"{q}")
            for q in (0.5, 0.95, 0.99)]),
        ("Messages per batch", "short", [
            (f'rate(stentor_batch_messages_sum{{instance=~"$instance"}}{RATE}) / rate(stentor_batch_messages_count{{instance=~"$instance"}}{RATE})', "mean")]),
    ]),
    ("Connections and limits", [
        ("Connections to hosts", "short", [
            ('stentor_lane_connections{instance=~"$instance"}', "{{lane}}"),
            ('stentor_delivery_connections{instance=~"$instance"}', "all"),
            ('stentor_delivery_connections_max{instance=~"$instance"}', "budget")]),
        ("Sessions of clients", "short", [
            ('stentor_smtp_sessions{instance=~"$instance"}', "sessions"),
            ('stentor_smtp_sessions_max{instance=~"$instance"}', "limit")]),
        ("Limits hit per second", "reqps", [
            (f'rate(stentor_limit_hits_total{{instance=~"$instance"}}{RATE}) > 0', "{{limit}}")]),
        ("DNS per second", "reqps", [
            (f'rate(stentor_dns_queries_total{{instance=~"$instance"}}{RATE})', "queries"),
            (f'rate(stentor_dns_failures_total{{instance=~"$instance"}}{RATE})', "failures")]),
    ]),
    ("Storage and process", [
        ("Journal", "bytes", [
            ('stentor_journal_content_bytes{instance=~"$instance"}', "live content"),
            ('stentor_streamed_bytes{instance=~"$instance"}', "on its way in")]),
        ("Journal writes per second", "Bps", [
            (f'rate(stentor_journal_written_bytes_total{{instance=~"$instance"}}{RATE})', "written"),
            (f'rate(stentor_journal_moved_bytes_total{{instance=~"$instance"}}{RATE})', "moved by cleaning")]),
        ("Disk", "bytes", [
            ('stentor_disk_free_bytes{instance=~"$instance"}', "free"),
            ('stentor_disk_reserve_bytes{instance=~"$instance"}', "reserve")]),
        ("Process", "short", [
            ('process_resident_memory_bytes{instance=~"$instance"}', "memory"),
            (f'rate(process_cpu_seconds_total{{instance=~"$instance"}}{RATE})', "processors")]),
    ]),
]


def panel(number, title, unit, targets, x, y):
    return {
        "id": number, "title": title, "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 6, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 10, "lineWidth": 1}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend,
             "datasource": {"type": "prometheus", "uid": "${datasource}"}}
            for at, (expr, legend) in enumerate(targets)
        ],
    }


def main():
    panels, number, y = [], 1, 0
    for title, row in ROWS:
        panels.append({"id": number, "title": title, "type": "row", "collapsed": False, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        number, y = number + 1, y + 1
        for at, (name, unit, targets) in enumerate(row):
            panels.append(panel(number, name, unit, targets, at * 6, y))
            number += 1
        y += 8
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {"name": "instance", "type": "query", "label": "Server", "multi": True, "includeAll": True, "refresh": 2,
         "current": {"selected": True, "text": "All", "value": "$__all"},
         "datasource": {"type": "prometheus", "uid": "${datasource}"},
         "definition": "label_values(stentor_build_info, instance)",
         "query": {"query": "label_values(stentor_build_info, instance)", "refId": "instance"}},
    ]
    dashboard = {
        "uid": "stentor", "title": "Stentor", "tags": ["mail"], "schemaVersion": 39, "version": 1, "editable": True,
        "time": {"from": "now-6h", "to": "now"}, "refresh": "30s", "timezone": "browser",
        "templating": {"list": variables}, "annotations": {"list": []}, "panels": panels,
    }
    path = pathlib.Path(__file__).with_name("stentor.json")
    path.write_text(json.dumps(dashboard, indent=1) + "\n")


main()
