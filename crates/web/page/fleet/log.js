// The log: who has done what, verified record by record.

import { h, mark, say, section } from "../dom.js";
import { Table } from "../table.js";
import * as feed from "../feed.js";
import { clock, count, day } from "../format.js";
import { asking, head, outcome } from "./told.js";

export function log(main) {
    const filter = h("input", { type: "search", placeholder: "Filter  /", "aria-label": "Filter the log by words", spellcheck: "false", input: () => show() });
    const top = head(main, "log");
    const table = new Table({
        label: "Log",
        key: (row) => `${row.number}`,
        empty: "No record is like that.",
        columns: [
            { name: "number", label: "No.", class: "number", show: (_, row) => row.number },
            { name: "at", label: "Time", class: "time", show: (_, row) => `${day(row.at_s * 1000)} ${clock(row.at_s * 1000)}` },
            { name: "who", label: "Who", class: "who", show: (_, row) => row.who },
            { name: "what", label: "What", class: "wide", show: (_, row) => row.what },
        ],
    });
    table.element.classList.add("log");
    const verified = h("p", { class: "verdict" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span"));
    const digest = h("p", { class: "note" }, "Its head, to be noted elsewhere: ", h("code"));
    const noted = h("input", { type: "text", id: "noted", required: true, spellcheck: "false", autocomplete: "off", placeholder: "17:q5Yc…=" });
    const said = outcome();
    const form = h("form", { class: "explain", submit: (event) => (event.preventDefault(), ask()) }, h("label", { for: "noted" }, "Is a head that you have noted in this log?"), noted, h("button", { type: "submit" }, "Look"));
    main.append(verified, digest, section("What was done", h("div", { class: "bar" }, filter), table.element), section("Noted elsewhere", form, said.element));
    let records = [];

    function show() {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        table.update(records.filter(({ who, what }) => words.every((word) => `${who} ${what}`.toLowerCase().includes(word))));
    }

    async function ask() {
        const answer = await feed.ask("fleet/log", { noted: noted.value }, true);
        if (!answer || answer.error) return said.fault(answer?.error ?? "The page's server does not answer.");
        if (!answer.noted) return said.fault("It is not: the log was written anew since it was noted, or was cut off.");
        said.show(h("p", {}, "It is: nothing up to there was written anew."));
    }

    const view = asking("Log", "fleet/log", {}, (told) => {
        top.update({ error: told.error });
        if (told.error) return;
        const number = told.head ? Number(told.head.split(":")[0]) : 0;
        mark(verified.firstElementChild, "data-tone", told.fault ? "bad" : "good");
        say(verified.lastElementChild, told.fault ?? `${count(number)} records, each with the digest of the one before`);
        say(digest.lastElementChild, told.head ?? "");
        records = told.records;
        show();
    });
    return { ...view, end: () => (view.end(), table.end()) };
}
