// Everything at a glance: whether all is well, and what is not.

import { figure, h, mark, say, section } from "../dom.js";
import { Table } from "../table.js";
import { History } from "../chart.js";
import * as feed from "../feed.js";
import { count, duration, ms, plural, rate } from "../format.js";
import { COLUMNS, addressOf } from "./peers.js";
import { eventTable, newest } from "./events.js";
import { counters, firewallTable, gateways, of, talkerTable, troubles, uplinkTable } from "./gateway.js";
import { loaded } from "./scripts.js";

// What lets others find a tunnel, or read it.
const exposed = ([name, is]) => [
    ...(is.keylog ? [`${name}: its keys are written to a file (up --keylog): whoever has that reads recorded traffic`] : []),
    ...(is.dark === false ? [`${name}: the rules that keep its prefix dark are not there`] : []),
];

const HISTORY_MS = 60_000;
const FEW = 8;

export function overview(main) {
    const dot = h("span", { class: "dot", "aria-hidden": "true" });
    const sentence = h("span");
    const title = h("h1", { class: "verdict" }, dot, sentence);
    const problems = h("ul", { class: "problems" });
    const figures = {
        rx: figure("In"),
        tx: figure("Out"),
        rtt: figure("Round trip", "The median of the peers'"),
        moves: figure("Moves in a minute", "Lanes born, of all peers"),
        drops: figure("Dropped", "Packets and datagrams since the daemons started"),
    };
    const throughput = new History({ label: "Throughput, 24 hours", series: [{ label: "in", colour: "blue", fill: true }, { label: "out", colour: "orange" }], format: rate, height: 170 });
    const { state, name, tunnel, spark, rx, tx, rtt, next, since } = COLUMNS;
    const peers = new Table({
        label: "Peers that need a look, then the busiest",
        columns: [state, name, tunnel, spark, rx, tx, rtt, next, since],
        key: (row) => feed.keyOf(row.tunnel, row.name),
        link: (row) => addressOf(row.tunnel, row.name),
        empty: "No tunnel is up.",
    });
    peers.element.classList.add("peers", "few");
    const more = h("a", { href: "#/peers", class: "more" });
    const uplinks = uplinkTable();
    const firewall = firewallTable();
    const talkers = talkerTable();
    const happened = eventTable("Latest events");
    happened.element.classList.add("few");
    const parts = {
        peers: section("Peers", peers.element, h("p", {}, more)),
        uplinks: section("Uplinks", uplinks.element),
        firewall: section("Firewall", firewall.element, h("p", {}, h("a", { href: "#/firewall", class: "more" }, "All counters"))),
        talkers: section("Top talkers", talkers.element),
        events: section("Events", happened.element, h("p", {}, h("a", { href: "#/events", class: "more" }, "All events"))),
    };
    const tunnels = h("p", { class: "note" });
    main.append(
        h("div", { class: "bar" }, title),
        problems,
        h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)),
        throughput.element,
        parts.peers,
        parts.uplinks,
        h("div", { class: "halves" }, parts.firewall, parts.talkers),
        parts.events,
        tunnels,
    );

    async function past() {
        const names = Object.keys(feed.state.tunnels);
        const all = (await Promise.all(names.map((tunnel) => feed.ask("history", { tunnel })))).filter(Boolean);
        throughput.element.hidden = all.length === 0;
        if (all.length === 0) return;
        const added = (field) =>
            all[0].columns[field].map((_, at) => {
                const known = all.map(({ columns }) => columns[field][at]).filter((value) => value !== null && value !== undefined);
                return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
            });
        throughput.show(all[0].from_s, all[0].step_s, [added("rx"), added("tx")]);
    }

    const moves = [];
    function judge(all, some) {
        const wrong = all.filter(({ peer }) => peer.state === "silent" || (peer.state === "handshake" && peer.fault));
        const deaf = Object.entries({ ...feed.state.tunnels, ...feed.state.scripts }).filter(([, is]) => is.fault);
        const unread = feed.state.sockets?.fault;
        const said = [
            ...(unread ? [[unread, null]] : []),
            ...deaf.map(([name, is]) => [`${name} does not answer: ${is.fault.says}`, null]),
            ...Object.entries(feed.state.tunnels).flatMap(exposed).map((trouble) => [trouble, null]),
            ...some.flatMap(troubles).map((trouble) => [trouble, null]),
            ...wrong.slice(0, FEW).map(({ tunnel, name, peer }) => [`${name}: ${peer.fault?.says ?? "nothing gets through"}`, addressOf(tunnel, name)]),
        ];
        if (wrong.length > FEW) said.push([`${plural(wrong.length - FEW, "more peer")} cannot be reached`, "#/peers"]);
        for (const uplink of of(some, "uplinks")) {
            if (!uplink.works && !uplink.stale) said.push([`Uplink ${uplink.name} does not lead to the Internet`, "#/gateway"]);
        }
        const failing = loaded().filter(({ script }) => script.errors > 0);
        for (const { script } of failing) said.push([`${script.file.split("/").pop()} failed at ${plural(script.errors, "packet")}`, "#/scripts"]);
        const key = JSON.stringify(said);
        if (problems.dataset.key !== key) {
            problems.dataset.key = key;
            problems.replaceChildren(...said.map(([text, address]) => h("li", {}, address ? h("a", { href: address }, text) : text)));
        }
        const up = all.filter(({ peer }) => peer.state === "established").length;
        const bad = wrong.length > 0 || deaf.length > 0 || Boolean(unread);
        mark(dot, "data-tone", bad ? "bad" : said.length > 0 ? "warn" : all.length + some.length > 0 ? "good" : "idle");
        if (all.length === 0) say(sentence, some.length > 0 ? "The gateway runs" : unread ? "What runs here is not known" : "Nothing of Sidestep runs here");
        else if (up === all.length) say(sentence, all.length === 1 ? "The peer is reached" : `All ${count(all.length)} peers are reached`);
        else {
            const idle = all.filter(({ peer }) => peer.state === "idle").length;
            const rest = idle > 0 ? `, ${count(idle)} ${idle === 1 ? "is" : "are"} idle` : "";
            say(sentence, `${count(up)} of ${plural(all.length, "peer")} ${up === 1 ? "is" : "are"} reached${rest}`);
        }
    }

    function update(what) {
        if (what !== "patch") happened.update(newest(feed.events.slice(-10)));
        if (what === "events") return;
        if (what === "snapshot") past();
        const all = [...feed.peers()];
        const some = gateways();
        judge(all, some);
        const known = (field) => all.map(({ peer }) => peer[field]).filter((value) => value !== null && value !== undefined);
        const sum = (field) => known(field).reduce((sum, value) => sum + value, 0);
        const trips = known("rtt_ms").sort((a, b) => a - b);
        figures.rx.set(known("rx").length ? rate(sum("rx")) : "–");
        figures.tx.set(known("tx").length ? rate(sum("tx")) : "–");
        figures.rtt.set(ms(trips[trips.length >> 1]), trips.length > 1 ? `${ms(trips[0])} to ${ms(trips.at(-1))}` : "");
        // Where a peer comes or goes, what was counted before is not to be compared with.
        if (moves.of !== all.length) moves.length = 0;
        moves.of = all.length;
        moves.push([feed.now(), sum("rotations")]);
        while (moves[0][0] < feed.now() - 60_000) moves.shift();
        const [first, last] = [moves[0], moves.at(-1)];
        const seconds = (last[0] - first[0]) / 1000;
        figures.moves.set(seconds >= 5 && last[1] >= first[1] ? count(((last[1] - first[1]) * 60) / seconds) : "–", known("lanes").length ? `${count(sum("lanes"))} lanes in use` : "");
        const drops = Object.values(feed.state.tunnels).reduce((sum, is) => sum + Object.values(is.drops ?? {}).reduce((a, b) => a + b, 0), sum("drops"));
        figures.drops.set(count(drops), "since the start");
        const rank = ({ peer }) => (peer.state === "silent" ? 0 : peer.state === "handshake" ? 1 : 2);
        const busy = ({ tunnel, name }) => (feed.rates.get(feed.keyOf(tunnel, name)) ?? []).reduce((sum, value) => sum + value, 0);
        const weight = new Map(all.map((row) => [row, busy(row)]));
        peers.element.classList.toggle("one-tunnel", Object.keys(feed.state.tunnels).length < 2);
        peers.update([...all].sort((a, b) => rank(a) - rank(b) || weight.get(b) - weight.get(a)).slice(0, FEW));
        say(more, all.length > FEW ? `All ${count(all.length)} peers` : "Peers");
        uplinks.update(of(some, "uplinks"));
        talkers.update(of(some, "talkers").slice(0, FEW));
        firewall.update(some.flatMap(({ is }) => counters(is.firewall)).slice(0, FEW));
        parts.peers.hidden = Object.keys(feed.state.tunnels).length === 0;
        parts.uplinks.hidden = of(some, "uplinks").length === 0;
        parts.firewall.hidden = !some.some(({ is }) => is.firewall);
        parts.talkers.hidden = of(some, "talkers").length === 0;
        const say_tunnel = ([name, is]) => `${name}: version ${is.version ?? "–"}, ${is.file ?? ""}, hops in ${is.hop_prefix ?? "–"} at ${is.external ?? "–"}, ${is.fault ? "does not answer" : `up for ${duration((feed.now() - is.started_ms) / 1000)}`}`;
        say(tunnels, Object.entries(feed.state.tunnels).map(say_tunnel).join(" · "));
    }

    const timer = setInterval(() => !document.hidden && past(), HISTORY_MS);
    return {
        title: "Overview",
        update,
        end() {
            clearInterval(timer);
            throughput.end();
            [peers, uplinks, firewall, talkers, happened].forEach((table) => table.end());
        },
    };
}
