"""Pictures of lines, as SVG."""

from html import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BELOW = 640, 340, 60, 48, 190, 48
STYLE = "text{font:12px sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}"
COLOURS = ["#1d4ed8", "#c2410c", "#0f766e", "#a855f7", "#525252", "#facc15"]


def lines(title, across, up, series):
    """A picture of several lines: `series` has (name, [(x, y)]). Steps across are even, whatever the numbers are."""
    steps = sorted({x for _, points in series for x, _ in points})
    most = max(y for _, points in series for _, y in points)
    top = next(m * 10 ** e for e in range(-3, 9) for m in (1, 2, 5) if m * 10 ** e >= most)
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BELOW
    x_of = lambda x: LEFT + plot_width * (steps.index(x) + 0.5) / len(steps)
    y_of = lambda y: TOP + plot_height * (1 - y / top)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/><text x="14" y="26" class="t">{escape(title)}</text>',
    ]
    for step in range(5):
        value = top * step / 4
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(value):.1f}" y2="{y_of(value):.1f}" stroke="#e5e7eb"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y_of(value) + 4:.1f}" class="e">{value:g}</text>')
    for x in steps:
        out.append(f'<text x="{x_of(x):.1f}" y="{HEIGHT - BELOW + 18}" class="m">{x:g}</text>')
    out.append(f'<text x="{LEFT + plot_width / 2:.0f}" y="{HEIGHT - 10}" class="m">{escape(across)}</text>')
    out.append(f'<text x="{LEFT}" y="{TOP - 8}" class="m">{escape(up)}</text>')
    for number, (name, points) in enumerate(series):
        colour, y = COLOURS[number % len(COLOURS)], TOP + 14 + 20 * number
        path = " ".join(f"{x_of(x):.1f},{y_of(value):.1f}" for x, value in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(value):.1f}" r="3" fill="{colour}"><title>{escape(name)}: {value:.3g}</title></circle>'
                for x, value in points]
        out.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 10}" width="13" height="13" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 32}" y="{y + 1}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])
