// Packet scripts: what they decided, what they took, where they failed.

import { figure, h, mark, say, section } from "../dom.js";
import { Table, linked } from "../table.js";
import * as feed from "../feed.js";
import { clock, count, day, plural } from "../format.js";

export const loaded = () => Object.entries(feed.state.scripts).flatMap(([host, { scripts }]) => (scripts ?? []).map((script) => ({ host, script })));
const VERDICTS = { NF_ACCEPT: "accepted", NF_DROP: "dropped", NF_STOLEN: "kept", NF_QUEUE: "queued", NF_REPEAT: "repeated", XT_CONTINUE: "continued" };
const number = (name, label, of) => ({ name, label, class: "number", first: "down", sort: (row) => of(row) ?? null, show: (_, row) => count(of(row)) });

const addressOf = ({ host, script }) => `#/script/${encodeURIComponent(host)}/${script.id}`;
const baseOf = (file) => file.split("/").pop();

export function scripts(main) {
    const none = h("p", { class: "none big" }, "No packet script is loaded (`sidestep script load`).");
    const table = new Table({
        label: "Scripts",
        key: ({ host, script }) => `${host} ${script.id}`,
        link: addressOf,
        empty: "No script is loaded.",
        sort: { by: "packets", down: true },
        columns: [
            { name: "file", label: "Script", class: "name code wide", sort: ({ script }) => script.file, show: (cell, row) => (linked(cell, baseOf(row.script.file), addressOf(row)), mark(cell, "title", row.script.file)) },
            { name: "hook", label: "Hook", class: "hook", show: (_, { script }) => [script.hook, script.dev].filter(Boolean).join(" at ") },
            { name: "tier", label: "Tier", class: "tier", show: (_, { script }) => script.tier },
            number("packets", "Packets", ({ script }) => script.packets),
            {
                name: "verdicts",
                label: "Verdicts",
                class: "verdicts wide",
                show: (_, { script }) => Object.entries(script.verdicts).filter(([, n]) => n > 0).map(([verdict, n]) => `${count(n)} ${VERDICTS[verdict] ?? verdict}`).join(", ") || "–",
            },
            number("errors", "Errors", ({ script }) => script.errors),
            { name: "ns", label: "Time", class: "number", first: "down", sort: ({ script }) => script.ns_per_packet ?? null, show: (_, { script }) => (script.ns_per_packet ? `${count(script.ns_per_packet)} ns` : "–") },
        ],
    });
    table.element.classList.add("scripts");
    const faults = h("ul", { class: "problems" });
    const all = h("div", {}, table.element, section("Last errors", faults));
    main.append(h("div", { class: "bar" }, h("h1", {}, "Scripts")), none, all);
    return {
        title: "Scripts",
        update(what) {
            if (what === "events") return;
            const some = loaded();
            none.hidden = some.length > 0;
            all.hidden = some.length === 0;
            table.update(some);
            const failed = some.filter(({ script }) => script.last_error);
            const deaf = Object.entries(feed.state.scripts).filter(([, is]) => is.fault);
            faults.replaceChildren(
                ...deaf.map(([host, is]) => h("li", {}, `${host} does not answer: ${is.fault.says}`)),
                ...failed.map(({ script: { last_error: error } }) => h("li", {}, `${day(error.unix_ms)} ${clock(error.unix_ms)}  `, h("code", {}, error.message), ...(error.traceback ?? []).map((line) => h("div", { class: "code" }, line)))),
            );
            faults.parentElement.hidden = failed.length + deaf.length === 0;
        },
        end: () => table.end(),
    };
}

// One script: its source, with what failed at each line.
export function script(main, host, id) {
    const name = h("span");
    const back = h("a", { href: "#/scripts", class: "back" }, "Scripts");
    const figures = { packets: figure("Packets"), accepted: figure("Accepted"), dropped: figure("Dropped"), errors: figure("Errors"), time: figure("Time for a packet"), tier: figure("Tier") };
    const fault = h("div", { class: "fault", role: "status", hidden: true });
    const source = h("ol", { class: "listing", tabindex: "0", "aria-label": "Source" });
    const none = h("p", { class: "none" }, "The source cannot be had.");
    main.append(
        h("div", { class: "bar" }, h("h1", {}, back, h("span", { class: "slash", "aria-hidden": "true" }, "/"), name)),
        fault,
        h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)),
        section("Source", none, source),
    );
    source.hidden = true;
    const find = () => loaded().find((one) => one.host === host && String(one.script.id) === id)?.script;
    feed.ask("script", { host, id }).then((known) => {
        if (!known) return;
        const lines = known.text.split("\n");
        if (lines.at(-1) === "") lines.pop();
        source.replaceChildren(...lines.map((line, at) => h("li", {}, h("span", { class: "at", "aria-hidden": "true" }, String(at + 1)), h("code", {}, line), h("span", { class: "failed" }))));
        source.hidden = false;
        none.hidden = true;
        show();
    });
    function show() {
        const is = find();
        if (!is) {
            say(name, `script ${id} is no longer loaded`);
            return;
        }
        say(name, baseOf(is.file));
        figures.packets.set(count(is.packets), [is.hook, is.dev].filter(Boolean).join(" at "));
        figures.accepted.set(count(is.verdicts.NF_ACCEPT));
        figures.dropped.set(count(is.verdicts.NF_DROP));
        figures.errors.set(count(is.errors), "", is.errors > 0 ? "bad" : null);
        figures.time.set(is.ns_per_packet ? `${count(is.ns_per_packet)} ns` : "–");
        figures.tier.set(is.tier, is.handed_over ? `${count(is.handed_over)} handed over to Lua` : is.function);
        const error = is.last_error;
        fault.hidden = !error;
        if (error) say(fault, `${day(error.unix_ms)} ${clock(error.unix_ms)}  ${[error.message, ...error.traceback].join("\n")}`);
        const lines = { ...is.error_lines };
        const last = error?.message.match(/:(\d+): /)?.[1];
        if (last) lines[last] ??= is.errors;
        [...source.children].forEach((line, at) => {
            const failed = lines[at + 1];
            mark(line, "data-failed", failed ? "" : null);
            say(line.lastElementChild, failed ? plural(failed, "error") : "");
        });
    }
    return { title: "Script", update: (what) => what !== "events" && show() };
}
