"""The frame of the report: its HTML and the styles for light and dark screens, phones and paper."""

import string

PAGE = string.Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --text: #1b1b1b; --muted: #5a5a5a; --line: #d8d8d8;
  --page: #ffffff; --panel: #f5f6f7; --link: #00558a; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --muted: #a9a9a9; --line: #3c3f43; --page: #17191c; --panel: #212428;
    --link: #7cc0ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1.25rem 4rem; background: var(--page);
  color: var(--text); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 2.5rem 0 0.75rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
h1, h2, p, figcaption, caption { overflow-wrap: anywhere; }
p { max-width: 44rem; margin: 0 0 0.9rem; white-space: pre-line; }
a { color: var(--link); }
nav { background: var(--panel); border-radius: 0.5rem; padding: 0.75rem 1.25rem; margin: 1.5rem 0; }
nav ol { margin: 0; padding-left: 1.3rem; }
figure { margin: 1.5rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff; padding: 0.5rem;
  border: 1px solid var(--line); border-radius: 0.4rem; }
figcaption, caption { color: var(--muted); font-size: 0.92rem; text-align: left; }
figcaption { margin-top: 0.5rem; max-width: 44rem; }
caption { caption-side: top; padding-bottom: 0.5rem; }
.wide { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: 0.95rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.9rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; }
thead th { border-bottom: 2px solid var(--muted); }
.number { text-align: right; white-space: nowrap; }
details { margin: 1rem 0; }
summary { cursor: pointer; }
pre { background: var(--panel); border-radius: 0.4rem; padding: 0.9rem 1rem; overflow-x: auto;
  font: 0.85rem/1.45 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; }
@media print {
  :root { --text: #000000; --muted: #444444; --line: #bbbbbb; --page: #ffffff; --panel: #ffffff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  details::details-content { content-visibility: visible; block-size: auto; } }
</style>
</head>
<body>
<main>
<h1>$title</h1>
$summary
$contents
$sections
<section id="provenance">
<h2>Configuration and versions</h2>
<details>
<summary>Full configuration</summary>
<pre>$config</pre>
</details>
$versions
</section>
</main>
</body>
</html>
"""
)
