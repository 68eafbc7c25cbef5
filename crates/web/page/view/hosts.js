// What hosts and routers behind a gateway have from it: addresses and names, prefixes, open ports.

import { section } from "../dom.js";
import { Table, number, text } from "../table.js";
import { left, list } from "../format.js";

const place = (address, port) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);
// Addresses of IPv4 in the order of their numbers.
const ordered = (address) => address.split(".").map((part) => part.padStart(3, "0")).join(".");
const sorted = (column, of) => ({ ...column, sort: (row) => of(row) ?? null });
const until = (show) => ({ name: "left", label: "Left", class: "number", sort: (row) => row.seconds ?? Infinity, show: (_, row) => show(row) });

// A section with a table of rows, which is there where `rows` finds any network that is about such, also without one.
function part(title, name, rows, table) {
    table.element.classList.add(name);
    const element = section(title, table.element);
    return {
        element,
        update(networks, found) {
            const some = rows(networks, found);
            element.hidden = some === null;
            table.update(some ?? []);
        },
        end: () => table.end(),
    };
}

// Who has an address from here: of IPv4 while a lease lasts, of IPv6 where the configuration gives one.
function addresses(networks) {
    const served = networks.filter((network) => network.dnsmasq?.range || network.dhcp6?.hosts.length);
    if (served.length === 0) return null;
    return served.flatMap(({ name: at, dnsmasq, dhcp6, stale }) => {
        const named = (name) => (dnsmasq?.domain ? `${name}.${dnsmasq.domain}` : name);
        const fixed = (dhcp6?.hosts ?? []).flatMap(({ name, addresses }) => addresses.map((address) => ({ name: named(name), address, mac: null, fixed: true, of: "IPv6" })));
        return [...(dnsmasq?.leases ?? []), ...fixed].map((row) => ({ ...row, at, stale }));
    });
}

const hosts = () =>
    part(
        "Hosts",
        "leased",
        addresses,
        new Table({
            label: "Hosts that have their address from here",
            key: (row) => `${row.at} ${row.address}`,
            empty: "No host has an address from here.",
            columns: [
                sorted(text("name", "Name", (row) => row.name ?? "–", "code name"), (row) => row.name),
                sorted(text("address", "Address", (row) => row.address, "code"), (row) => ordered(row.address)),
                sorted(text("mac", "MAC", (row) => row.mac ?? "–", "code"), (row) => row.mac),
                sorted(text("at", "Network", (row) => row.at), (row) => row.at),
                until((row) => (row.of === "IPv6" ? "fixed" : row.fixed ? `${left(row.seconds)}, fixed` : left(row.seconds))),
            ],
        }),
    );

const routers = () =>
    part(
        "Prefixes of routers behind",
        "delegated",
        (networks, { delegated }) => (networks.some(({ dhcp6 }) => dhcp6?.delegates) ? delegated : null),
        new Table({
            label: "Prefixes that routers behind have from here",
            key: (row) => `${row.network} ${row.router} ${row.duid} ${row.prefixes.map(({ prefix }) => prefix)}`,
            empty: "No router has asked for a prefix.",
            columns: [
                text("prefixes", "Prefixes", (row) => (row.prefixes.length ? list(row.prefixes.map(({ prefix }) => prefix)) : "none now"), "code name"),
                sorted(text("router", "Router", (row) => row.router, "code"), (row) => row.router),
                text("duid", "DUID", (row) => row.duid, "code"),
                sorted(text("at", "Network", (row) => row.network), (row) => row.network),
                until((row) => left(row.seconds)),
            ],
        }),
    );

// Where a port that a host has opened is reached: of IPv6 at the host's own address.
const outside = (row) => (row.external_address === null ? "no address now" : place(row.external_address, row.external_port));

const ports = () =>
    part(
        "Open ports",
        "opened",
        (networks, { mappings }) => (networks.some((network) => typeof network.port_mappings === "number") ? mappings : null),
        new Table({
            label: "Ports that hosts have opened",
            key: (row) => `${row.protocol} ${place(row.address, row.port)}`,
            empty: "No host has opened a port.",
            columns: [
                sorted(text("protocol", "Protocol", (row) => row.protocol.toUpperCase()), (row) => row.protocol),
                sorted(text("host", "Host", (row) => place(row.address, row.port), "code name"), (row) => ordered(row.address)),
                text("outside", "Reached at", outside, "code"),
                text("from", "From", (row) => (row.from.length ? list(row.from) : "everybody"), "code"),
                sorted(text("by", "Asked by", (row) => row.asked_by), (row) => row.asked_by),
                sorted(text("at", "Network", (row) => row.network), (row) => row.network),
                until((row) => left(row.seconds)),
            ],
        }),
    );

export const fromHere = () => [hosts(), routers(), ports()];
