"""Clients as tables of notebooks."""

import collections
import html

NAMES_MAX = 8


def client_html(client):
    text = "<code>%s</code>" % html.escape(repr(client))
    if client._closed:
        return text
    rows = "".join(
        "<tr><td>n%s</td><td>%s</td><td>%s</td></tr>"
        % (node["id"], html.escape(node["state"]), node["slots"])
        for node in client._core.nodes()
    )
    head = "<tr><th>node</th><th>state</th><th>slots</th></tr>"
    return "<table>%s%s</table>" % (head, rows) + open_calls_html(client) + text


def open_calls_html(client):
    """The names of open calls with most of them."""
    with client._lock:
        names = collections.Counter(future._name for future in client._futures.values())
    found = names.most_common(NAMES_MAX)
    shown = ["%d %s" % (count, html.escape(name)) for name, count in found]
    shown += ["\u2026"] if len(names) > len(shown) else []
    return "<p>open calls: %s</p>" % ", ".join(shown) if shown else ""
