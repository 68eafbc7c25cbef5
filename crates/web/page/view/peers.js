// All peers: a line for each.

import { h, mark, say } from "../dom.js";
import { Table, linked, toned } from "../table.js";
import { spark } from "../chart.js";
import * as feed from "../feed.js";
import { STATES, briefly, count, ms, plural, rate, stateOf } from "../format.js";

export const addressOf = (tunnel, name) => `#/peer/${encodeURIComponent(tunnel)}/${encodeURIComponent(name)}`;
const wait = ({ peer }) => (peer.next_ms ? Math.max(0, peer.next_ms - feed.now()) : null);

// The columns that other pages use, too.
export const COLUMNS = {
    state: {
        name: "state",
        label: "State",
        class: "state",
        sort: ({ peer }) => stateOf(peer).rank,
        show: (cell, { peer }) => {
            const { word, tone } = stateOf(peer);
            toned(cell, word, tone);
            mark(cell, "title", peer.fault?.says);
        },
    },
    name: {
        name: "name",
        label: "Peer",
        class: "name",
        sort: ({ name }) => name,
        show: (cell, { tunnel, name }) => linked(cell, name, addressOf(tunnel, name)),
    },
    tunnel: { name: "tunnel", label: "Tunnel", class: "tunnel", sort: ({ tunnel }) => tunnel, show: (_, { tunnel }) => tunnel },
    spark: {
        name: "spark",
        label: "Last minute",
        class: "spark",
        show: (cell, { tunnel, name }) => spark(cell, feed.rates.get(feed.keyOf(tunnel, name))),
    },
    rx: { name: "rx", label: "In", class: "number rx", first: "down", sort: ({ peer }) => peer.rx ?? null, show: (_, { peer }) => rate(peer.rx) },
    tx: { name: "tx", label: "Out", class: "number tx", first: "down", sort: ({ peer }) => peer.tx ?? null, show: (_, { peer }) => rate(peer.tx) },
    rtt: { name: "rtt", label: "Round trip", class: "number", first: "down", sort: ({ peer }) => peer.rtt_ms ?? null, show: (_, { peer }) => ms(peer.rtt_ms) },
    drops: { name: "drops", label: "Dropped", class: "number drops", first: "down", sort: ({ peer }) => peer.drops, show: (_, { peer }) => count(peer.drops) },
    next: {
        name: "next",
        label: "Next move",
        class: "number next",
        sort: wait,
        show: (_, row) => (wait(row) === null ? "–" : `${(wait(row) / 1000).toFixed(0)} s`),
    },
    since: {
        name: "since",
        label: "For",
        class: "number since",
        sort: ({ peer }) => (peer.since_ms ? feed.now() - peer.since_ms : null),
        show: (_, { peer }) => briefly(peer.since_ms ? (feed.now() - peer.since_ms) / 1000 : null),
    },
};

export function peers(main) {
    const { state, name, tunnel, spark: minute, rx, tx, rtt, drops, next, since } = COLUMNS;
    const table = new Table({
        label: "Peers",
        columns: [state, name, tunnel, minute, rx, tx, rtt, drops, next, since],
        key: (row) => feed.keyOf(row.tunnel, row.name),
        link: (row) => addressOf(row.tunnel, row.name),
        sort: { by: "name", down: false },
        preference: "peers-sort",
        empty: "No peer is like that.",
    });
    table.element.classList.add("peers");
    const filter = h("input", { type: "search", placeholder: "Filter  /", "aria-label": "Filter peers by name", spellcheck: "false", input: () => update() });
    const chips = new Map();
    const chosen = { state: null };
    const bar = h("div", { class: "bar" }, h("h1", {}, "Peers"), filter);
    for (const [of, { word, tone }] of Object.entries(STATES)) {
        const number = h("b");
        const press = () => {
            chosen.state = chosen.state === of ? null : of;
            update();
        };
        const chip = h("button", { type: "button", class: "chip", "aria-pressed": "false", click: press }, h("span", { class: "dot", "data-tone": tone, "aria-hidden": "true" }), `${word} `, number);
        chips.set(of, { chip, number });
        bar.append(chip);
    }
    const shown = h("p", { class: "shown", role: "status" });
    bar.append(shown);
    main.append(bar, table.element);

    function update() {
        const all = [...feed.peers()];
        for (const [of, { chip, number }] of chips) {
            say(number, all.filter(({ peer }) => peer.state === of).length);
            mark(chip, "aria-pressed", chosen.state === of);
        }
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const fits = ({ tunnel, name, peer }) =>
            (!chosen.state || peer.state === chosen.state) && words.every((word) => `${tunnel} ${name}`.toLowerCase().includes(word));
        const some = all.filter(fits);
        table.element.classList.toggle("one-tunnel", Object.keys(feed.state.tunnels).length < 2);
        table.update(some);
        say(shown, some.length === all.length ? plural(all.length, "peer") : `${count(some.length)} of ${plural(all.length, "peer")}`);
    }
    return { title: "Peers", update: (what) => what !== "events" && update(), end: () => table.end() };
}
