// What a change would do, and the draft of it as a file: nobody signs here.

import { h, section } from "../dom.js";
import { Table, linked } from "../table.js";
import { plural } from "../format.js";
import { few, siteAddress } from "./told.js";

const KINDS = [
    ["added", "+", "good", "comes"],
    ["returned", "+", "warn", "was taken out, and comes back"],
    ["revoked", "−", "bad", "is taken out"],
    ["removed", "−", "bad", "is mentioned no more: its name and keys are free"],
    ["changed", "~", "warn", "is different"],
];
const signed = ({ added, removed, changed }) =>
    [
        ["+", added],
        ["−", removed],
        ["~", changed],
    ]
        .filter(([, list]) => list?.count)
        .map(([sign, list]) => `${sign} ${few(list)}`)
        .join("\n") || "–";

// Rules, or people, that go and come, each in a line.
const listed = ({ added, removed }) =>
    [
        ["−", "bad", removed],
        ["+", "good", added],
    ].flatMap(([sign, tone, { count, some }]) => [
        ...some.map((line) => h("li", { "data-tone": tone }, h("b", {}, sign), " ", h("code", {}, line))),
        ...(count > some.length ? [h("li", {}, `and ${count - some.length} more`)] : []),
    ]);

// Returns the element, and what ends it.
export function difference(of) {
    if (of.is_empty) return { element: h("p", { class: "none" }, "Nothing would be different."), end() {} };
    const lines = KINDS.flatMap(([kind, sign, tone, what]) => of.sites[kind].some.map((name) => h("li", { "data-tone": tone }, h("b", {}, sign), " site ", h("a", { href: siteAddress(name) }, name), ` ${what}`)));
    const more = KINDS.map(([kind]) => of.sites[kind].count - of.sites[kind].some.length).reduce((sum, one) => sum + one, 0);
    if (more > 0) lines.push(h("li", {}, `and ${plural(more, "site")} more`));
    if (of.settings) lines.push(h("li", { "data-tone": "warn" }, h("b", {}, "~"), " rules, or where controllers are"), ...listed(of.settings_lines));
    if (of.authority) lines.push(h("li", { "data-tone": "bad" }, h("b", {}, "~"), " who may sign"), ...listed(of.authority_lines));
    const table = new Table({
        label: "What is different at each gateway",
        key: (row) => row.name,
        empty: "No gateway has other peers or networks.",
        columns: [
            { name: "name", label: "At the gateway of", class: "name", show: (cell, row) => linked(cell, row.name, siteAddress(row.name)) },
            { name: "peers", label: "Peers", class: "wide", show: (_, row) => signed(row.peers) },
            { name: "networks", label: "Networks", class: "wide code", show: (_, row) => signed(row.networks) },
        ],
    });
    table.element.classList.add("differs");
    const beyond = of.more_gateways ? h("p", { class: "note" }, `And at ${plural(of.more_gateways, "more gateway", "more gateways")}.`) : null;
    const element = h("div", {}, h("ul", { class: "changes" }, lines), section("At the gateways", table.element, beyond));
    table.update(of.gateways);
    return { element, end: () => table.end() };
}

// A draft: what it would do, the file, and what to do with it.
export function draft({ file, text, difference: of }) {
    const shown = difference(of);
    const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    const steps = h(
        "ol",
        { class: "steps" },
        h("li", {}, h("a", { class: "act", href: address, download: file }, "Save the draft"), " and take it to where an administrator's key is: it never comes here."),
        h("li", {}, "There it is shown once more, and signed: ", h("code", {}, `sidestep control sign ${file} --key ADMINISTRATOR.key`)),
        h("li", {}, "Bring it back, and ", h("a", { href: "#/fleet/hand-in" }, "hand it in"), "."),
    );
    return { element: h("div", {}, shown.element, of.is_empty ? null : section("To put it in force", steps)), end: () => (shown.end(), URL.revokeObjectURL(address)) };
}
