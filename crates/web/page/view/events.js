// What has happened.

import { h, mark, say } from "../dom.js";
import { Table, linked, toned } from "../table.js";
import * as feed from "../feed.js";
import { clock, count, day, plural } from "../format.js";

const TONES = { error: "bad", warning: "warn", info: "idle" };
const AT_ONCE = 100;
const keyOf = (event) => `${event.source} ${event.unix_ms} ${event.number}`;

// A table of events.
export function eventTable(label, withSource = true) {
    const columns = [
        {
            name: "time",
            label: "Time",
            class: "time",
            show: (cell, event) => {
                mark(cell, "title", event.time);
                const today = day(event.unix_ms) === day(feed.now());
                return today ? clock(event.unix_ms) : `${day(event.unix_ms).slice(5)} ${clock(event.unix_ms)}`;
            },
        },
        { name: "priority", label: "Priority", class: "priority", show: (cell, event) => toned(cell, event.priority, TONES[event.priority] ?? "idle") },
        withSource && { name: "source", label: "Source", class: "source", show: (_, event) => event.source },
        { name: "event", label: "Event", class: "event code", show: (_, event) => event.event },
        {
            name: "message",
            label: "What",
            class: "message",
            show: (cell, event) => {
                if (!event.peer) return event.message;
                linked(cell, event.message, `#/peer/${encodeURIComponent(event.source)}/${encodeURIComponent(event.peer)}`);
            },
        },
    ].filter(Boolean);
    const table = new Table({ label, columns, key: keyOf, empty: "Nothing has happened." });
    table.element.classList.add("events");
    return table;
}

// The newest come first.
export const newest = (events) => [...events].reverse();

export function events(main) {
    let most = AT_ONCE;
    const more = h("button", { type: "button", class: "chip", hidden: true, click: () => ((most += AT_ONCE), update()) }, "Earlier events");
    const table = eventTable("Events");
    const filter = h("input", { type: "search", placeholder: "Filter  /", "aria-label": "Filter events by words", spellcheck: "false", input: () => update() });
    const serious = h("button", { type: "button", class: "chip", "aria-pressed": "false", click: () => (mark(serious, "aria-pressed", serious.getAttribute("aria-pressed") !== "true"), update()) }, "warnings and errors ");
    const shown = h("p", { class: "shown", role: "status" });
    main.append(h("div", { class: "bar" }, h("h1", {}, "Events"), filter, serious, shown), table.element, h("p", { class: "after" }, more));
    function update() {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const only = serious.getAttribute("aria-pressed") === "true";
        const fits = (event) => {
            const text = `${event.source} ${event.event} ${event.reason ?? ""} ${event.message}`.toLowerCase();
            return (!only || event.priority !== "info") && words.every((word) => text.includes(word));
        };
        const some = feed.events.filter(fits);
        table.update(newest(some).slice(0, most));
        more.hidden = some.length <= most;
        say(shown, some.length === feed.events.length ? plural(some.length, "event") : `${count(some.length)} of ${plural(feed.events.length, "event")}`);
    }
    return { title: "Events", update: (what) => what !== "patch" && update(), end: () => table.end() };
}
