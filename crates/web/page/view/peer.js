// One peer: how it is, its lanes, its past.

import { figure, h, mark, say, section } from "../dom.js";
import { Table } from "../table.js";
import { History, lanes } from "../chart.js";
import * as feed from "../feed.js";
import { count, duration, ms, percent, plural, rate, stateOf } from "../format.js";
import { eventTable, newest } from "./events.js";

const LANES_MS = 120_000;
const HISTORY_MS = 60_000;

export function peer(main, tunnel, name) {
    let detail = null;
    let asking = false;
    let tier = "minutes";

    const dot = h("span", { class: "dot", "aria-hidden": "true" });
    const state = h("span", { class: "word" });
    const fault = h("p", { class: "fault", role: "status", hidden: true });
    const back = h("a", { href: "#/peers", class: "back" }, "Peers");
    const title = h("div", { class: "bar" }, h("h1", {}, back, h("span", { class: "slash", "aria-hidden": "true" }, "/"), name), h("p", { class: "is" }, dot, state));

    const figures = {
        rtt: figure("Round trip"),
        rx: figure("In"),
        tx: figure("Out"),
        next: figure("Next move", "Until a lane is born or dies"),
        moves: figure("Moves", "Lanes born since the daemon started"),
        heard: figure("Heard", "Since something came that was the peer's for certain"),
        mtu: figure("Path MTU"),
        session: figure("Session"),
    };
    const until = h("i");
    figures.next.element.append(h("div", { class: "until", "aria-hidden": "true" }, until));

    const picture = h("canvas", { class: "lanes", role: "img", "aria-label": "Lanes of the last two minutes: a bar for the time in which each was in use" });
    const inUse = h("p", { class: "note" });
    const ends = new Table({
        label: "Endpoints in use",
        key: (row) => String(row.lane),
        empty: "No lane is in use.",
        columns: [
            { name: "lane", label: "Lane", class: "number lane", show: (_, row) => row.lane },
            { name: "local", label: "Here", class: "code", show: (_, row) => row.local },
            { name: "remote", label: "There", class: "code", show: (_, row) => row.remote },
        ],
    });
    ends.element.classList.add("ends");
    const drops = new Table({
        label: "Dropped, by reason",
        key: (row) => row.reason,
        empty: "Nothing was dropped.",
        columns: [
            { name: "reason", label: "Reason", class: "name", show: (_, row) => row.reason },
            { name: "count", label: "Packets", class: "number", show: (_, row) => count(row.count) },
        ],
    });
    drops.element.classList.add("pairs");

    const charts = {
        rtt: new History({ label: "Round trip", series: [{ label: "", colour: "violet" }], format: ms }),
        rate: new History({ label: "Throughput", series: [{ label: "in", colour: "blue", fill: true }, { label: "out", colour: "orange" }], format: rate }),
        drops: new History({ label: "Dropped in a minute", series: [{ label: "", colour: "red" }], format: (value) => (value === null || value === undefined ? "–" : value < 10 ? String(Math.round(value * 10) / 10) : count(value)) }),
        up: new History({ label: "Reached", series: [{ label: "", colour: "green", fill: true }], format: percent, most: 1.05 }),
    };
    const ranges = h("div", { class: "switch", role: "group", "aria-label": "How far back" });
    for (const [of, word] of [["minutes", "24 hours"], ["hours", "31 days"]]) {
        const press = () => {
            tier = of;
            choose();
            past();
        };
        ranges.append(h("button", { type: "button", "data-tier": of, click: press }, word));
    }
    const choose = () => ranges.childNodes.forEach((button) => mark(button, "aria-pressed", button.dataset.tier === tier));
    choose();
    const history = section("History", ranges, h("div", { class: "charts" }, Object.values(charts).map((chart) => chart.element)));
    const happened = eventTable("Events of this peer", false);

    main.append(
        title,
        fault,
        h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)),
        section("Lanes", h("div", { class: "board" }, picture), inUse, ends.element),
        history,
        h("div", { class: "halves" }, section("Dropped", drops.element), section("Events", happened.element)),
    );

    function forget() {
        detail = null;
        Object.values(figures).forEach((one) => one.set("–"));
        until.style.width = "0";
        ends.element.hidden = true;
        say(inUse, "");
        lanes(picture, [], feed.now(), LANES_MS);
    }

    async function look() {
        if (asking) return;
        asking = true;
        detail = (await feed.ask("peer", { tunnel, peer: name })) ?? detail;
        asking = false;
        show();
    }

    async function past() {
        const known = await feed.ask("history", { tunnel, peer: name, tier });
        history.classList.toggle("without", !known);
        if (!known) return;
        const { from_s, step_s, columns } = known;
        charts.rtt.show(from_s, step_s, [columns.rtt_ms]);
        charts.rate.show(from_s, step_s, [columns.rx, columns.tx]);
        charts.drops.show(from_s, step_s, [columns.drops]);
        charts.up.show(from_s, step_s, [columns.up]);
    }

    function show() {
        const short = feed.state.tunnels[tunnel]?.peers?.[name];
        const gone = feed.state.tunnels[tunnel]?.fault;
        // What a daemon said before it ended is no longer so.
        if (gone) forget();
        const is = detail ?? short;
        if (!is) {
            say(state, "there is no such peer");
            return;
        }
        const { word, tone } = stateOf(short ?? is);
        mark(dot, "data-tone", gone ? "idle" : tone);
        say(state, gone ? `${word} when ${tunnel} last answered` : `${word} for ${duration((feed.now() - (short?.since_ms ?? feed.now())) / 1000)}`);
        const why = gone?.says ?? short?.fault?.says;
        say(fault, why);
        fault.hidden = !why;
        if (!detail) return;
        figures.rtt.set(ms(is.rtt_ms), is.clock_offset_ms ? `clock ${is.clock_offset_ms > 0 ? "+" : "−"}${Math.abs(is.clock_offset_ms)} ms` : "");
        figures.rx.set(rate(is.rx), `${count(is.rx_packets)} packets`);
        figures.tx.set(rate(is.tx), `${count(is.tx_packets)} packets`);
        figures.moves.set(count(is.rotations), is.skips ? `${plural(is.skips, "lane")} left out` : "");
        figures.heard.set(is.last_heard_s === null ? "never" : duration(is.last_heard_s), is.last_answered_s === null ? "" : `answered ${duration(is.last_answered_s)} ago`);
        figures.mtu.set(`${is.path_mtu} B`, is.path_mtu_settled ? "found" : "a cautious guess");
        figures.session.set(is.session ? duration(is.session.age_s) : "none", is.session ? `${is.session.cipher}, ${plural(is.session.rekeys, "rekey")}` : "");
        ends.element.hidden = false;
        const remote = new Map(is.remote.map((end) => [end.lane, end]));
        const written = (end) => (end ? `[${end.address}]:${end.port}` : "–");
        ends.update(is.local.map((end) => ({ lane: end.lane, local: written(end), remote: written(remote.get(end.lane)) })));
        drops.update(Object.entries(is.drops).filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1]).map(([reason, number]) => ({ reason, count: number })));
        say(inUse, `${plural(is.local.length, "lane")} in use, ${plural(is.lanes_seen.length, "lane")} in the last three minutes. Each is a pair of addresses and ports that is used for some seconds and never again.`);
    }

    function tick() {
        if (!detail) return;
        const short = feed.state.tunnels[tunnel]?.peers?.[name];
        const wait = short?.next_ms ? Math.max(0, short.next_ms - feed.now()) : null;
        longest = Math.max(longest, wait ?? 0);
        figures.next.set(wait === null ? "–" : `${(wait / 1000).toFixed(1)} s`, `${plural(detail.local.length, "lane")} in use`);
        until.style.width = wait === null ? "0" : `${(100 * wait) / longest}%`;
        lanes(picture, detail.lanes_seen, feed.now(), LANES_MS);
    }
    let longest = 1000;

    const timer = setInterval(() => !document.hidden && past(), HISTORY_MS);
    past();
    return {
        title: name,
        update(what) {
            if (what === "events" || what === "snapshot") happened.update(newest(feed.events.filter((event) => event.peer === name && event.source === tunnel)).slice(0, 50));
            if (what !== "events") {
                show();
                look();
            }
        },
        tick,
        end() {
            clearInterval(timer);
            Object.values(charts).forEach((chart) => chart.end());
            [ends, drops, happened].forEach((table) => table.end());
        },
    };
}
