"""The docs page: one file without scripts or anything from elsewhere, so that it works where the API does."""

from typing import Final

PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ document.info.title }} API</title>
<style>
  :root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
  body { font: 16px/1.55 system-ui, sans-serif; max-width: 56rem; margin: 3rem auto; padding: 0 1.25rem; }
  h1 { margin: 0; letter-spacing: -.02em; }
  h2 { margin: 2.5rem 0 .5rem; text-transform: capitalize; }
  details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .55rem .9rem; }
  summary { cursor: pointer; display: flex; gap: .75rem; align-items: baseline; flex-wrap: wrap; }
  code, pre { font: 13.5px/1.5 ui-monospace, monospace; }
  pre { overflow: auto; border-top: 1px solid var(--line); padding-top: .6rem; }
  .method { font-weight: 700; min-width: 4rem; }
  .muted { opacity: .7; }
  table { border-collapse: collapse; width: 100%; }
  td { border-top: 1px solid var(--line); padding: .3rem .6rem .3rem 0; vertical-align: top; }
</style>
<h1>{{ document.info.title }}</h1>
<p>{{ document.info.description }}</p>
<p class="muted">Send <code>Authorization: Bearer KEY</code>. Errors are
<code>{"error": {message, type, code, param}}</code>. The machine-readable form is
<a href="/openapi.json">/openapi.json</a>.</p>
<pre>curl $URL/v1/jobs -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\
  -d '{"model": "smollm2", "input": "What is the capital of France?"}'
curl -N $URL/v1/jobs/$ID/events -H "Authorization: Bearer $KEY" -H "Accept: text/event-stream"</pre>
{% for path, methods in document.paths.items() %}{% for method, operation in methods.items() %}
<details>
  <summary><code class="method">{{ method | upper }}</code><code>{{ path }}</code>
    <span class="muted">{{ operation.summary }}</span></summary>
  {% if operation.parameters %}<table>{% for parameter in operation.parameters %}
    <tr><td><code>{{ parameter.name }}</code></td><td class="muted">{{ parameter.in }}</td>
    <td>{{ parameter.description or parameter.schema.description or "" }}</td></tr>
  {% endfor %}</table>{% endif %}
  <table>{% for status, answer in operation.responses.items() %}
    <tr><td><code>{{ status }}</code></td><td>{{ answer.description }}</td></tr>{% endfor %}</table>
  {% if operation.requestBody %}
  {% set content = (operation.requestBody.content.values() | first) %}
  {% set name = content.schema["$ref"].split("/")[-1] %}
  <pre>{{ document.components.schemas[name].properties | tojson(indent=2) }}</pre>{% endif %}
</details>
{% endfor %}{% endfor %}
</html>
"""
