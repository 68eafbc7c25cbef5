// The gateway: uplinks, networks, hosts; and its firewall.

import { figure, h, mark, say, section } from "../dom.js";
import { Table, number, text, toned } from "../table.js";
import * as feed from "../feed.js";
import { bytes, count, duration, left, list, ms, rate } from "../format.js";
import { fromHere } from "./hosts.js";

// The gateways, with their names.
export const gateways = () => Object.entries(feed.state.gateways).map(([name, is]) => ({ name, is }));

// What they have of something. It is stale where its gateway does not answer.
export const of = (some, field) => some.flatMap(({ is }) => (is[field] ?? []).map((row) => (is.fault ? { ...row, stale: true } : row)));

function stateOfUplink(row) {
    if (row.stale) return ["not known", "idle"];
    return row.works ? ["works", "good"] : [row.link_up ? "does not lead out" : "no signal", "bad"];
}

export function uplinkTable() {
    const table = new Table({
        label: "Uplinks",
        key: (row) => row.name,
        empty: "No uplink.",
        columns: [
            { name: "state", label: "State", class: "state", show: (cell, row) => toned(cell, ...stateOfUplink(row)) },
            text("name", "Uplink", (row) => row.name, "name"),
            text("interface", "Interface", (row) => row.interface),
            text("router", "Router", (row) => row.router ?? row.tunnel?.remote ?? "–", "code"),
            text("prefixes", "Prefixes", (row) => row.waits_for_prefix?.why ?? list(row.prefixes.map(({ prefix }) => prefix)), "code wide"),
            text("dns", "DNS", (row) => list(row.dns_servers), "code"),
        ],
    });
    table.element.classList.add("uplinks");
    return table;
}

const bits = (number) => rate(number === null ? null : number / 8);

function stateOfShaping(row) {
    if (row.stale) return ["not known", "idle"];
    return row.rate_in_force_bits === null ? ["not shaped", "bad"] : ["shaped", "good"];
}

// The directions of uplinks whose bandwidth is given.
const directions = (uplinks) =>
    uplinks.flatMap(({ name, bandwidth, stale }) =>
        ["down", "up"].filter((way) => bandwidth?.[way]).map((way) => ({ ...bandwidth[way], name, way: way === "down" ? "in" : "out", stale })),
    );

function bandwidthTable() {
    const table = new Table({
        label: "Bandwidth of uplinks",
        key: (row) => `${row.name} ${row.way}`,
        empty: "No uplink has a bandwidth.",
        columns: [
            { name: "state", label: "State", class: "state", show: (cell, row) => toned(cell, ...stateOfShaping(row)) },
            text("name", "Uplink", (row) => `${row.name}, ${row.way}`, "name"),
            number("rate", "Rate now", (row) => row.rate_in_force_bits, bits),
            text("given", "Configured", (row) => row.why ?? (row.least_bits ? `${bits(row.least_bits)} to ${bits(row.rate_bits)}` : bits(row.rate_bits)), "wide"),
            number("waits", "Packets wait", (row) => (row.rate_in_force_bits === null ? null : row.peak_delay_ms), ms),
            number("dropped", "Dropped", (row) => row.dropped_packets, count),
            number("marked", "Marked", (row) => row.marked_packets, count),
        ],
    });
    table.element.classList.add("bandwidth");
    return table;
}

// Whom rates follow, a sentence for each uplink where they do.
function follows({ name, bandwidth }) {
    const delay = bandwidth?.delay;
    if (!delay) return [];
    if (!delay.reflector) return [`${name}: the rates stay, as there is no router to ask`];
    if (delay.usual_ms === null || delay.newest_ms === null) return [`${name}: the rates stay, as ${delay.reflector} does not answer`];
    return [`${name}: the rates follow ${delay.reflector}, which answers in ${ms(delay.newest_ms)}, usually in ${ms(delay.usual_ms)}`];
}

export function talkerTable() {
    const table = new Table({
        label: "Hosts that carry most",
        key: (row) => row.address,
        empty: "No host has a connection.",
        sort: { by: "received", down: true },
        columns: [
            text("address", "Host", (row) => row.address, "code name"),
            number("connections", "Connections", (row) => row.connections, count),
            number("received", "Received", (row) => row.received_bytes, bytes),
            number("sent", "Sent", (row) => row.sent_bytes, bytes),
        ],
    });
    table.element.classList.add("talkers");
    return table;
}

// What is wrong with a gateway, one sentence each.
export function troubles({ name, is }) {
    const some = is.fault ? [`${name} does not answer: ${is.fault.says}`] : [];
    some.push(...(is.problems ?? []));
    for (const network of is.networks ?? []) {
        for (const rogue of network.rogue_routers ?? []) some.push(`${network.name}: ${rogue.address} advertises itself as a router and should not be there`);
    }
    return some;
}

function nothing(main, title, what) {
    const none = h("p", { class: "none big" }, what);
    main.append(h("div", { class: "bar" }, h("h1", {}, title)), none);
    return none;
}

export function gateway(main) {
    const none = nothing(main, "Gateway", "No gateway runs here: a configuration with [[uplink]] or [[network]] makes one (`sidestep up`).");
    const figures = { connections: figure("Connections"), uptime: figure("Running"), version: figure("Version") };
    const uplinks = uplinkTable();
    const rates = bandwidthTable();
    const followed = h("p", { class: "note" });
    const bandwidth = section("Bandwidth", rates.element, followed);
    const leases = new Table({
        label: "Prefixes and how long they last",
        key: (row) => `${row.at} ${row.prefix}`,
        empty: "No prefix.",
        columns: [
            text("prefix", "Prefix", (row) => row.prefix, "code name"),
            text("at", "At", (row) => row.at),
            text("interface", "Interface", (row) => row.interface),
            { name: "preferred", label: "Preferred", class: "number", sort: (row) => row.preferred_seconds ?? Infinity, show: (_, row) => left(row.preferred_seconds) },
            { name: "valid", label: "Valid", class: "number", sort: (row) => row.valid_seconds ?? Infinity, show: (_, row) => left(row.valid_seconds) },
        ],
    });
    leases.element.classList.add("leases");
    const given = fromHere();
    const neighbors = new Table({
        label: "Neighbors",
        key: (row) => `${row.interface} ${row.address}`,
        sort: { by: "address", down: false },
        empty: "No host was seen.",
        columns: [
            { ...text("address", "Address", (row) => row.address, "code name"), sort: (row) => row.address },
            { ...text("mac", "MAC", (row) => row.mac, "code"), sort: (row) => row.mac },
            { ...text("interface", "Interface", (row) => row.interface), sort: (row) => row.interface },
        ],
    });
    neighbors.element.classList.add("neighbors");
    const talkers = talkerTable();
    const why = h("p", { class: "note" });
    const routes = new Table({
        label: "Routes",
        key: (row) => `${row.to} ${row.from} ${row.interface} ${row.via} ${row.metric}`,
        empty: "No route.",
        columns: [
            text("to", "To", (row) => row.to, "code name"),
            text("from", "From", (row) => row.from ?? "any", "code"),
            text("via", "Via", (row) => row.via ?? (row.interface ? "on the link" : "unreachable"), "code"),
            text("interface", "Interface", (row) => row.interface ?? "–"),
            { name: "metric", label: "Metric", class: "number", show: (_, row) => row.metric },
        ],
    });
    routes.element.classList.add("routes");
    const problems = h("ul", { class: "problems" });
    const tables = [uplinks, rates, leases, ...given, neighbors, talkers, routes];
    const all = h(
        "div",
        {},
        problems,
        h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)),
        section("Uplinks", uplinks.element),
        bandwidth,
        section("Leases", leases.element),
        given.map(({ element }) => element),
        h("div", { class: "halves" }, section("Neighbors", neighbors.element), section("Top talkers", talkers.element, why)),
        section("Routes", routes.element),
    );
    main.append(all);
    return {
        title: "Gateway",
        update(what) {
            if (what === "events") return;
            const some = gateways();
            none.hidden = some.length > 0;
            all.hidden = some.length === 0;
            const alive = some.filter(({ is }) => !is.fault);
            figures.connections.set(alive.length ? count(alive.reduce((sum, { is }) => sum + (is.connections ?? 0), 0)) : "–");
            figures.uptime.set(duration(alive[0]?.is.uptime_seconds));
            figures.version.set(some[0]?.is.version);
            uplinks.update(of(some, "uplinks"));
            const lasting = (links) => links.flatMap((link) => link.prefixes.map((prefix) => ({ ...prefix, at: link.name, interface: link.interface })));
            leases.update([...lasting(of(some, "uplinks")), ...lasting(of(some, "networks"))]);
            const shaped = directions(of(some, "uplinks"));
            bandwidth.hidden = shaped.length === 0;
            rates.update(shaped);
            say(followed, of(alive, "uplinks").flatMap(follows).join("; "));
            const found = { delegated: of(some, "delegated_prefixes"), mappings: of(some, "port_mappings") };
            given.forEach((part) => part.update(of(some, "networks"), found));
            neighbors.update(of(some, "neighbors"));
            talkers.update(of(some, "talkers"));
            routes.update(of(some, "routes"));
            say(why, some.map(({ is }) => is.talkers_incomplete).filter(Boolean).join("; "));
            problems.replaceChildren(...some.flatMap(troubles).map((trouble) => h("li", {}, trouble)));
        },
        end: () => tables.forEach((table) => table.end()),
    };
}

const TONES = { accept: "good", drop: "bad", reject: "warn" };

export function firewallTable(label = "What the firewall has counted") {
    const table = new Table({
        label,
        key: (row) => row.key,
        empty: "Nothing was counted.",
        columns: [
            { name: "verdict", label: "Verdict", class: "state", show: (cell, row) => toned(cell, row.verdict ?? "other", TONES[row.verdict] ?? "idle") },
            { name: "what", label: "Decided by", class: "name wide", show: (_, row) => row.what },
            number("packets", "Packets", (row) => row.packets, count),
            number("bytes", "Volume", (row) => row.bytes, bytes),
        ],
    });
    table.element.classList.add("firewall");
    return table;
}

// The counters as rows: rules, then what is decided by default.
export function counters(firewall) {
    const named = (rule) => `rule ${rule.number}${rule.line ? `, line ${rule.line}` : ""}${rule.comment ? `: ${rule.comment}` : ""}`;
    const rules = (firewall?.rules ?? []).map((rule) => ({ ...rule, key: `rule ${rule.number}`, what: named(rule) }));
    const defaults = (firewall?.defaults ?? []).map((one) => ({ ...one, key: `${one.verdict} ${one.reason}`, what: `by default: ${one.reason}` }));
    return [...rules, ...defaults];
}

export function firewall(main) {
    const none = nothing(main, "Firewall", "No firewall is applied: [firewall] in a gateway's configuration makes one (docs/firewall.md).");
    const figures = {
        dropped: figure("Dropped"),
        rejected: figure("Rejected"),
        byDefault: figure("Of these by default", "That no rule of the configuration was about"),
    };
    const table = firewallTable();
    const words = h("input", { type: "text", id: "packet", required: true, spellcheck: "false", autocomplete: "off", placeholder: "tcp from 2a00:1450::1 to gateway port 22 in wan" });
    const where = h("select", { "aria-label": "Gateway" });
    const said = h("div", { class: "said", role: "status" });
    const explain = h("form", { class: "explain", submit: (event) => (event.preventDefault(), ask()) }, h("label", { for: "packet" }, "What happens to this packet? Nothing is sent."), words, where, h("button", { type: "submit" }, "Explain"));
    async function ask() {
        const answer = await feed.ask("explain", { gateway: where.value, packet: words.value }, true);
        if (!answer || answer.error) {
            said.replaceChildren(h("p", { class: "fault" }, answer?.error ?? "The gateway does not answer."));
            return;
        }
        const verdict = h("p", { class: "verdict" }, h("span", { class: "dot", "data-tone": TONES[answer.verdict] ?? "idle", "aria-hidden": "true" }), `${answer.verdict}, from ${answer.from} to ${answer.to}`);
        const others = answer.depends_on_rate_or_time;
        const more = others.length ? h("p", { class: "note" }, `It depends on rate or time, too: ${others.map((rule) => `rule ${rule}`).join(", ")}. Add “above-rate”, or “at mon 09:00”.`) : null;
        said.replaceChildren(verdict, h("p", {}, answer.reason), ...[more].filter(Boolean));
    }
    const all = h("div", {}, h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)), section("Explain a packet", explain, said), section("Counters", table.element));
    main.append(all);
    return {
        title: "Firewall",
        update(what) {
            if (what === "events") return;
            const some = gateways().filter(({ is }) => is.firewall);
            none.hidden = some.length > 0;
            all.hidden = some.length === 0;
            const names = some.map(({ name }) => name);
            if (where.dataset.names !== names.join()) {
                where.dataset.names = names.join();
                where.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
                where.hidden = names.length < 2;
            }
            const sum = (field) => some.reduce((sum, { is }) => sum + is.firewall[field], 0);
            figures.dropped.set(count(sum("dropped_packets")), "packets");
            figures.rejected.set(count(sum("rejected_packets")), "packets, answered with an error");
            figures.byDefault.set(count(sum("refused_by_default_packets")), "packets");
            table.update(some.flatMap(({ is }) => counters(is.firewall)));
        },
        end: () => table.end(),
    };
}
