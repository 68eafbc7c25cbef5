// The gateway: uplinks, networks, hosts; and its firewall.

import { figure, h, mark, say, section } from "../dom.js";
import { Table, toned } from "../table.js";
import * as feed from "../feed.js";
import { bytes, count, duration, plural } from "../format.js";

const left = (seconds) => (seconds === null || seconds === undefined ? "no end" : duration(seconds));
const list = (items) => (items?.length ? items.join(", ") : "–");
const text = (name, label, of, className = "") => ({ name, label, class: className, show: (_, row) => of(row) });
const number = (name, label, of, how) => ({ name, label, class: "number", first: "down", sort: (row) => of(row) ?? null, show: (_, row) => how(of(row)) });

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
    const hosts = new Table({
        label: "Hosts that have their IPv4 address from here",
        key: (row) => `${row.at} ${row.address}`,
        empty: "No host has an address from here.",
        columns: [
            { ...text("name", "Name", (row) => row.name ?? "–", "code name"), sort: (row) => row.name ?? null },
            { ...text("address", "Address", (row) => row.address, "code"), sort: (row) => row.address.split(".").map((part) => part.padStart(3, "0")).join(".") },
            { ...text("mac", "MAC", (row) => row.mac, "code"), sort: (row) => row.mac },
            { ...text("at", "Network", (row) => row.at), sort: (row) => row.at },
            { name: "left", label: "Left", class: "number", sort: (row) => row.seconds ?? Infinity, show: (_, row) => (row.fixed ? `${left(row.seconds)}, fixed` : left(row.seconds)) },
        ],
    });
    hosts.element.classList.add("leased");
    const leased = section("Hosts", hosts.element);
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
    const tables = [uplinks, leases, hosts, neighbors, talkers, routes];
    const all = h(
        "div",
        {},
        problems,
        h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)),
        section("Uplinks", uplinks.element),
        section("Leases", leases.element),
        leased,
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
            const served = of(some, "networks").filter((network) => network.dnsmasq?.range);
            leased.hidden = served.length === 0;
            hosts.update(served.flatMap((network) => network.dnsmasq.leases.map((lease) => ({ ...lease, at: network.name, stale: network.stale }))));
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
