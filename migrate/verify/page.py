"""The report as one HTML page: stages, loss curves, the tree of sub-modules coloured by error. It needs no network."""

from __future__ import annotations

import math
from html import escape

from .results import Bench, CaseReport, Heat, Stage, VerifyReport
from .table import found, remembered, timed

_GOOD, _BAD, _ODD = ("equal", "holds"), ("different", "failed"), ("shapes only", "eager only", "recompiles")
_COLOURS = ("#2563eb", "#dc2626", "#d97706")
_WIDTH, _HEIGHT = 520, 180
_STYLE = """
:root { color-scheme: light dark; --good: #15803d; --bad: #dc2626; --odd: #b45309; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; } h3 { font-size: 1rem; }
code, .number { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem .25rem 0; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; } td:last-child { overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; } .odd { color: var(--odd); }
.none { opacity: .6; } .place { border-left: 4px solid var(--bad); padding-left: .8rem; }
.tree div { border-radius: 3px; padding: 0 .5rem; margin: 1px 0; color: #111; display: flex; gap: 1rem; }
.tree span { margin-left: auto; } svg { border: 1px solid var(--line); border-radius: 4px; }
"""


def render_page(report: VerifyReport) -> str:
    """The whole page as text."""
    verdict = "equal in all that was run" if report.ok else "not equal"
    kind = "good" if report.ok else "bad"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>verify: {escape(report.original.name)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1><code>{escape(report.original.name)}</code> against <code>{escape(report.converted.name)}</code>: "
        f'<span class="{kind}">{verdict}</span></h1>',
        f"<p class=none>{escape(str(report.original))} (torch, cpu) against {escape(str(report.converted))} "
        f"(JAX, {escape(report.device)}). {escape(versions)}</p>",
        *(_case(case) for case in report.cases),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _bench(bench: Bench) -> list[str]:
    if bench.note:
        return [f"<p>Not measured: {escape(bench.note)}</p>"]
    heads = ("time per", "way", "median", "quartiles", "first step", "steps", "")
    parts = ["<table><tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>"]
    for row in sorted(bench.rows, key=lambda r: r.what):
        numbers = "".join(f'<td class="number">{escape(n)}</td>' for n in timed(row))
        parts.append(f"<tr><td>{row.what}</td><td>{row.way}</td>{numbers}<td>{escape(row.detail)}</td></tr>")
    return [*parts, "</table>", *(f"<p>{escape(remembered(m))}</p>" for m in bench.memory)]


def _case(case: CaseReport) -> str:
    parts = [f"<h2><code>{escape(case.case)}</code></h2>"]
    for title, item in (("First statement", case.statement), ("First sub-module", case.divergence)):
        if item is not None:
            parts.append(f'<p class="place"><b>{title} that differs.</b> {escape(item.text)}</p>')
    parts += [f"<p>Note: {escape(note)}</p>" for note in case.notes]
    heads = ("stage", "how", "verdict", "max abs", "max rel", "tolerance", "compared, and what was found")
    parts.append("<table><tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr>")
    parts += [_row(stage) for stage in case.stages]
    parts.append("</table>")
    if case.bench is not None:
        parts += _bench(case.bench)
    if case.curves:
        parts += ["<h3>Loss at each step</h3>", _curves(case.curves)]
    if case.heat:
        parts.append("<h3>Sub-modules, by the relative error of what they give</h3>")
        parts += ['<div class="tree">', *(_node(h) for h in sorted(case.heat, key=lambda h: h.path)), "</div>"]
    return "\n".join(parts)


def _row(stage: Stage) -> str:
    kinds = {**dict.fromkeys(_GOOD, "good"), **dict.fromkeys(_BAD, "bad"), **dict.fromkeys(_ODD, "odd")}
    numbers = "".join(
        f'<td class="number">{"" if n is None else f"{n:.1e}"}</td>'
        for n in (stage.max_abs, stage.max_rel, stage.tolerance)
    )
    verdict = f'<td class="{kinds.get(stage.verdict, "none")}">{stage.verdict}</td>'
    return (
        f"<tr><td>{escape(stage.name)}</td><td>{stage.how}</td>{verdict}{numbers}<td>{escape(found(stage))}</td></tr>"
    )


def _node(heat: Heat) -> str:
    """One sub-module: green within the tolerance, from yellow to red the further beyond it, grey where unmatched."""
    error = heat.made
    if error is None:
        colour, shown = "#d4d4d4", "not matched"
    elif error <= heat.tolerance:
        colour, shown = "#bbf7d0", f"{error:.1e}"
    else:
        beyond = min(1.0, math.log10(max(error / heat.tolerance, 1.0)) / 6) if math.isfinite(error) else 1.0
        colour = f"hsl({50 - 50 * beyond:.0f} 95% {75 - 10 * beyond:.0f}%)"
        given = "inputs differ" if heat.given is not None and heat.given > heat.tolerance else "inputs agree"
        shown = f"{error:.1e}, {given}"
    depth = heat.path.count(".") + 1 if heat.path else 0
    name = f"{escape(heat.path or '(the module itself)')} <i>{escape(heat.kind)}</i>"
    return f'<div style="margin-left:{1.2 * depth:.1f}rem;background:{colour}">{name}<span>{shown}</span></div>'


def _curves(curves: tuple[tuple[str, tuple[float, ...]], ...]) -> str:
    values = [v for _, line in curves for v in line if math.isfinite(v)]
    if not values:
        return "<p>no finite loss</p>"
    low, high = min(values), max(values)
    span = high - low or 1.0
    steps = max(len(line) for _, line in curves)
    lines = []
    for number, (name, line) in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [
            (75 + i * (_WIDTH - 195) / max(1, steps - 1), 15 + (high - v) / span * (_HEIGHT - 45))
            for i, v in enumerate(line)
            if math.isfinite(v)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = f' stroke-dasharray="{6 + 4 * number} {4 * number}"' if number else ""
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="{path}"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        lines.append(f'<text x="{_WIDTH - 105}" y="{25 + 20 * number}" fill="{colour}">{escape(name)}</text>')
    axis = (
        f'<text x="5" y="20" fill="currentColor">{high:.4g}</text>'
        f'<text x="5" y="{_HEIGHT - 28}" fill="currentColor">{low:.4g}</text>'
        f'<text x="75" y="{_HEIGHT - 6}" fill="currentColor">step 1 to {steps}</text>'
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" font-size="13" role="img" aria-label="loss curves">'
        f"{axis}{''.join(lines)}</svg>"
    )
