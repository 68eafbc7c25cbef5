// Numbers for people. What is not known is a dash.

const NONE = "–";
const minus = (text) => text.replace("-", "−");

function scaled(value, units, step) {
    let at = 0;
    while (value >= 999.5 && at < units.length - 1) {
        value /= step;
        at += 1;
    }
    const digits = at === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return `${value.toFixed(digits)} ${units[at]}`;
}

// Octets in a second, in bits.
export const rate = (octets) =>
    octets === null || octets === undefined ? NONE : scaled(octets * 8, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], 1000);

export const bytes = (octets) =>
    octets === null || octets === undefined ? NONE : scaled(octets, ["B", "kB", "MB", "GB", "TB"], 1000);

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (number) => (number === null || number === undefined ? NONE : GROUPED.format(number).replaceAll(",", "\u202f"));

export function ms(value) {
    if (value === null || value === undefined) return NONE;
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return minus(`${value.toFixed(digits)} ms`);
}

export const percent = (part) => (part === null || part === undefined ? NONE : `${(part * 100).toFixed(part > 0.9995 || part === 0 ? 0 : 1)} %`);

// A time, in seconds: the two units that matter.
export function duration(seconds) {
    if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return NONE;
    const s = Math.max(0, Math.floor(seconds));
    const two = (number) => String(number).padStart(2, "0");
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} min`;
    return `${Math.floor(s / 86400)} d ${two(Math.floor((s % 86400) / 3600))} h`;
}

// The same in five characters or so, for a column.
export function briefly(seconds) {
    if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return NONE;
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    if (s < 86400) return `${Math.floor(s / 3600)} h`;
    return `${Math.floor(s / 86400)} d`;
}

// What is left of a time that may have no end.
export const left = (seconds) => (seconds === null || seconds === undefined ? "no end" : duration(seconds));
export const list = (items) => (items?.length ? items.join(", ") : NONE);

const two = (number) => String(number).padStart(2, "0");
export function clock(unix_ms) {
    const at = new Date(unix_ms);
    return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
export function day(unix_ms) {
    const at = new Date(unix_ms);
    return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

// Of the states of a peer: what it is called, and how it is marked.
export const STATES = {
    established: { word: "established", tone: "good", rank: 3 },
    silent: { word: "silent", tone: "bad", rank: 0 },
    handshake: { word: "connecting", tone: "warn", rank: 1 },
    idle: { word: "idle", tone: "idle", rank: 2 },
};
export const stateOf = (peer) => STATES[peer.state] ?? { word: peer.state ?? "not known", tone: "idle", rank: 2 };

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
