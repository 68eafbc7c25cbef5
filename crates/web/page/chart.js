// Pictures: history by uPlot, the last minute in a row of the table, lanes.

import { h, mark } from "./dom.js";

const styles = () => getComputedStyle(document.documentElement);
const colour = (name) => styles().getPropertyValue(`--${name}`).trim();

// Calls it when light becomes dark or the other way round; what is returned ends that.
export function onTheme(listener) {
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", listener);
    document.addEventListener("theme", listener);
    return () => {
        media.removeEventListener("change", listener);
        document.removeEventListener("theme", listener);
    };
}

// A history: lines over time. series: [{ label, colour, fill, format }]
export class History {
    constructor({ label, series, height = 150, format, least = 0, most = null }) {
        Object.assign(this, { series, height, format, least, most });
        this.place = h("div", { class: "plot", role: "img", "aria-label": label });
        const legend = series.map((one) => {
            const value = h("b");
            one.value = value;
            return h("span", {}, h("i", { class: "swatch", "data-colour": one.colour, "aria-hidden": "true" }), one.label, " ", value);
        });
        this.time = h("span", { class: "at" });
        this.element = h("figure", { class: "history" }, h("figcaption", {}, h("span", { class: "name" }, label), ...legend, this.time), this.place);
        this.resize = new ResizeObserver(() => {
            if (this.plot && this.place.clientWidth) this.plot.setSize({ width: this.place.clientWidth, height: this.height });
        });
        this.unfollow = onTheme(() => this.draw());
    }

    // columns: one for each series, at equal steps from a time on; in seconds.
    show(from_s, step_s, columns) {
        const times = columns[0].map((_, at) => from_s + at * step_s);
        this.data = [times, ...columns];
        this.draw();
    }

    draw() {
        if (!this.data) return;
        this.plot?.destroy();
        const axis = { stroke: colour("faint-text"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: colour("line"), width: 1 } };
        const format = this.format;
        const range = (_, low, high) => [this.least, this.most ?? (high > this.least ? high * 1.08 : this.least + 1)];
        const options = {
            width: Math.max(this.place.clientWidth, 200),
            height: this.height,
            padding: [8, 4, 0, 0],
            legend: { show: false },
            cursor: { points: { size: 6 }, y: false, drag: { x: false, y: false } },
            scales: { x: { time: true }, y: { range } },
            axes: [
                { ...axis, size: 24, gap: 4, space: 64, values: (_, at, __, ___, step) => at.map((value) => label(value, step)) },
                { ...axis, size: 72, gap: 6, space: 34, values: (_, at) => at.map((value) => format(value)) },
            ],
            series: [
                {},
                ...this.series.map((one) => ({
                    label: one.label,
                    stroke: colour(one.colour),
                    width: 1.5,
                    fill: one.fill ? colour(`${one.colour}-wash`) : undefined,
                    points: { show: false },
                    spanGaps: false,
                })),
            ],
            hooks: { setCursor: [(plot) => this.tell(plot.cursor.idx)] },
        };
        this.plot = new globalThis.uPlot(options, this.data, this.place);
        this.resize.observe(this.place);
        this.tell(null);
    }

    // The values at a place, or the last ones.
    tell(at) {
        const last = this.data[0].length - 1;
        const place = at ?? last;
        this.series.forEach((one, number) => {
            let value = this.data[number + 1][place];
            if (at === null && value === null) value = this.data[number + 1][place - 1];
            one.value.textContent = (one.format ?? this.format)(value);
        });
        this.time.textContent = at === null || at === undefined ? "" : moment(this.data[0][place]);
    }

    end() {
        this.unfollow();
        this.resize.disconnect();
        this.plot?.destroy();
    }
}

const two = (number) => String(number).padStart(2, "0");
function label(unix_s, step_s) {
    const at = new Date(unix_s * 1000);
    if (step_s >= 86400 || (at.getHours() === 0 && at.getMinutes() === 0)) return `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${two(at.getHours())}:${two(at.getMinutes())}`;
}
function moment(unix_s) {
    const at = new Date(unix_s * 1000);
    return `${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

function surface(canvas) {
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return { context, width, height };
}

// The last minute, as a small area in a cell.
export function spark(cell, values = []) {
    let [area, line] = cell.querySelectorAll("path");
    if (!area) {
        const make = (name, attributes) => {
            const element = document.createElementNS("http://www.w3.org/2000/svg", name);
            for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
            return element;
        };
        const picture = make("svg", { viewBox: "0 0 59 24", preserveAspectRatio: "none", "aria-hidden": "true" });
        picture.append((area = make("path", { class: "area" })), (line = make("path", { class: "line" })));
        cell.append(picture);
    }
    const most = Math.max(...values, 1);
    const point = (value, at) => `${60 - values.length + at} ${(22.5 - (value / most) * 20).toFixed(1)}`;
    const along = values.map(point).join("L");
    mark(line, "d", along && `M${along}`);
    mark(area, "d", along && `M${60 - values.length} 24L${along}L59 24`);
}

// Lanes, as the demonstration draws them: a row for each in the order of birth, a bar for the time in which it was in use.
// lanes: [[number, first_ms, last_ms]]
export function lanes(canvas, some, now_ms, span_ms) {
    const { context, width, height } = surface(canvas);
    const [left, bottom] = [4, 18];
    const from = now_ms - span_ms;
    const x = (at) => left + ((Math.max(at, from) - from) / span_ms) * (width - left - 4);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillStyle = colour("faint-text");
    context.strokeStyle = colour("line");
    const seconds = span_ms / 1000;
    const step = width < 500 ? 60 : 30;
    for (let ago = 0; ago <= seconds; ago += step) {
        const at = x(now_ms - ago * 1000);
        context.beginPath();
        context.moveTo(at, 0);
        context.lineTo(at, height - bottom);
        context.stroke();
        context.textAlign = ago === 0 ? "right" : ago === seconds ? "left" : "center";
        context.fillText(ago === 0 ? "now" : `−${ago} s`, at, height - 4);
    }
    const shown = some.filter(([, , last]) => last >= from).sort((a, b) => a[1] - b[1]);
    const row = Math.min((height - bottom - 4) / Math.max(shown.length, 1), 10);
    const [alive, dead] = [colour("blue"), colour("blue-dim")];
    shown.forEach(([, first, last], at) => {
        const lives = now_ms - last < 2500;
        context.fillStyle = lives ? alive : dead;
        const begin = x(first);
        const end = lives ? x(now_ms) : x(last);
        context.fillRect(begin, 2 + at * row, Math.max(end - begin, 2), Math.max(row * 0.6, 1));
    });
}
