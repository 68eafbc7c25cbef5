// What the server says: everything once, then what changes. While nobody looks at the page, nothing is asked for.

export const state = {
    tunnels: Object.create(null),
    gateways: Object.create(null),
    scripts: Object.create(null),
    // Where daemons are looked for.
    sockets: Object.create(null),
};
export const events = [];
export const rates = new Map();
// When the last word came, by the server's clock, and by how much that is ahead of this one.
export const heard = { at_ms: 0, offset_ms: 0, live: false, history: false, fleet: false };

const EVENTS_KEPT = 2000;
const RATES_KEPT = 60;
const AGAIN_MS = 2000;
const SILENCE_MS = 8000;
const listeners = new Set();
let source = null;
let watchdog = 0;

// The server's time now.
export const now = () => Date.now() + heard.offset_ms;

// Calls it after each word of the server; what is returned ends that.
export function follow(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
}

// A JSON merge patch (RFC 7396). Objects have no prototype, so that a name such as `__proto__` is one like any other.
export function merge(target, patch) {
    if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
    const merged = target !== null && typeof target === "object" && !Array.isArray(target) ? target : Object.create(null);
    for (const name of Object.keys(patch)) {
        if (patch[name] === null) delete merged[name];
        else merged[name] = merge(merged[name], patch[name]);
    }
    return merged;
}

// What is true of a peer only while its daemon says so.
const PASSING = { state: null, fault: null, since_ms: null, rx: null, tx: null, rtt_ms: null, next_ms: null, lanes: null };

// All peers, with their tunnel. Of those whose daemon does not answer there is what was, and nothing that passes.
export function* peers() {
    for (const [tunnel, { peers: some, fault }] of Object.entries(state.tunnels)) {
        for (const [name, known] of Object.entries(some ?? {})) {
            yield { tunnel, name, peer: fault ? { ...known, ...PASSING } : known };
        }
    }
}

export const keyOf = (tunnel, name) => `${tunnel}\n${name}`;

function announce(what) {
    for (const listener of listeners) listener(what);
}

function heed(at_ms) {
    heard.at_ms = at_ms;
    heard.offset_ms = at_ms - Date.now();
    heard.live = true;
    clearTimeout(watchdog);
    watchdog = setTimeout(lose, SILENCE_MS);
}

function lose() {
    close();
    heard.live = false;
    announce("lost");
    if (!document.hidden) setTimeout(open, AGAIN_MS);
}

function close() {
    clearTimeout(watchdog);
    source?.close();
    source = null;
}

function remember() {
    const there = new Set();
    for (const { tunnel, name, peer } of peers()) {
        const key = keyOf(tunnel, name);
        there.add(key);
        let known = rates.get(key);
        if (!known) rates.set(key, (known = []));
        known.push((peer.tx ?? 0) + (peer.rx ?? 0));
        if (known.length > RATES_KEPT) known.shift();
    }
    for (const key of rates.keys()) if (!there.has(key)) rates.delete(key);
}

function open() {
    if (source || document.hidden) return;
    source = new EventSource("/api/feed");
    source.addEventListener("snapshot", ({ data }) => {
        const told = JSON.parse(data);
        heed(told.at_ms);
        heard.history = told.history;
        heard.fleet = told.fleet;
        for (const part of Object.keys(state)) state[part] = merge(Object.create(null), told.state?.[part] ?? {});
        events.splice(0, events.length, ...told.events);
        rates.clear();
        for (const [tunnel, some] of Object.entries(told.rates)) {
            for (const [name, known] of Object.entries(some)) rates.set(keyOf(tunnel, name), known);
        }
        announce("snapshot");
    });
    source.addEventListener("patch", ({ data }) => {
        const told = JSON.parse(data);
        heed(told.at_ms);
        for (const part of Object.keys(told.patch)) state[part] = merge(state[part], told.patch[part]);
        remember();
        announce("patch");
    });
    source.addEventListener("events", ({ data }) => {
        events.push(...JSON.parse(data));
        events.splice(0, events.length - EVENTS_KEPT);
        announce("events");
    });
    source.addEventListener("error", lose);
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
export const start = open;

// Asks for a document; null where there is none, or why there is none, if `why` is to be told.
export async function ask(path, query, why = false) {
    try {
        const answer = await fetch(`/api/${path}?${new URLSearchParams(query)}`);
        if (answer.status === 401) location.reload();
        const document = answer.ok ? await answer.json() : null;
        return document?.error && !why ? null : document;
    } catch {
        return null;
    }
}

// Sends something, and is answered with a document, or with why it was not done.
export async function send(path, body) {
    try {
        const answer = await fetch(`/api/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body });
        if (answer.status === 401) location.reload();
        return answer.ok ? await answer.json() : { error: (await answer.text()).trim() };
    } catch {
        return { error: "The page's server does not answer." };
    }
}
