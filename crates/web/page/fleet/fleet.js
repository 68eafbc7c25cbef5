// The fleet: its map, its sites, where each stands. Its other pages are beside this file.

import { figure, h, mark, say, section } from "../dom.js";
import { Table, linked, toned } from "../table.js";
import * as feed from "../feed.js";
import { briefly, count, plural } from "../format.js";
import { applications, handIn, rules } from "./changes.js";
import { log } from "./log.js";
import { Map as Picture } from "./map.js";
import { reach } from "./reach.js";
import { site } from "./site.js";
import { STANDINGS, asking, button, head, siteAddress, standingOf } from "./told.js";

const VIEWS = { reach, applications, rules, "hand-in": handIn, log, site };

export const fleet = (main, path, ...rest) => (VIEWS[path] ?? map)(main, ...rest);

const text = (name, label, of, more = {}) => ({ name, label, sort: (row) => of(row) ?? null, show: (_, row) => of(row) ?? "–", ...more });

function siteTable() {
    const table = new Table({
        label: "Sites",
        key: (row) => row.name,
        link: (row) => siteAddress(row.name),
        sort: { by: "state", down: false },
        preference: "sites-sort",
        empty: "No site is like that.",
        columns: [
            { name: "state", label: "Stands", class: "state", sort: (row) => standingOf(row).rank, show: (cell, row) => toned(cell, standingOf(row).word, standingOf(row).tone) },
            { name: "name", label: "Site", class: "name", sort: (row) => row.name, show: (cell, row) => linked(cell, row.name, siteAddress(row.name)) },
            text("role", "Role", (row) => row.role),
            text("region", "Region", (row) => row.region, { class: "region" }),
            text("zone", "Zone", (row) => row.zone, { class: "zone" }),
            text("serial", "Has", (row) => row.heard?.serial, { class: "number serial" }),
            { name: "ago", label: "Asked", class: "number", sort: (row) => row.heard?.ago_s ?? null, show: (_, row) => briefly(row.heard?.ago_s) },
            text("by", "Of", (row) => row.heard?.by, { class: "by" }),
        ],
    });
    table.element.classList.add("sites");
    return table;
}

function map(main) {
    const filter = h("input", { type: "search", placeholder: "Filter  /", "aria-label": "Filter sites by name, role, region or zone", spellcheck: "false", input: () => show() });
    const top = head(main, "");
    const figures = { sites: figure("Sites"), document: figure("Document"), signers: figure("Have to sign"), controllers: figure("Controllers"), you: figure("You are") };
    const picture = new Picture();
    const table = siteTable();
    const chips = Object.entries(STANDINGS).map(([state, { word, tone }]) => {
        const number = h("b");
        const press = () => {
            chosen = chosen === state ? null : state;
            show();
        };
        const chip = h("button", { type: "button", class: "chip", "aria-pressed": "false", click: press }, h("span", { class: "dot", "data-tone": tone, "aria-hidden": "true" }), `${word} `, number);
        return { word, chip, number, state };
    });
    const heard = h("p", { class: "note" });
    const out = button("Log out", async () => {
        const answer = await feed.send("fleet/log-out", "{}");
        if (answer.error) top.update({ ...told, error: answer.error });
        await view.again();
    }, { class: "act plain" });
    const who = h("p", { class: "note" }, "With what the page itself may. ", h("a", { href: "/fleet/login" }, "Log in as yourself"), ", where the controllers have an identity provider.");
    main.append(
        h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)),
        section("Tunnels by the rules", picture.element, picture.note),
        section("Sites", h("div", { class: "bar" }, filter, chips.map(({ chip }) => chip)), table.element, heard),
        section("Who asks", who, out),
    );
    let [told, chosen] = [{}, null];

    function show() {
        const all = told.sites ?? [];
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const fits = (row) => {
            const has = `${row.name} ${row.role} ${row.region ?? ""} ${row.zone ?? ""}`.toLowerCase();
            return (!chosen || standingOf(row) === STANDINGS[chosen]) && words.every((word) => has.includes(word));
        };
        for (const { word, chip, number, state } of chips) {
            say(number, count(all.filter((row) => standingOf(row).word === word).length));
            mark(chip, "aria-pressed", chosen === state);
        }
        table.update(all.filter(fits));
    }

    function take(now) {
        told = now.sites ? now : { ...told, ...now };
        top.update(now, trouble(now.sites ?? []));
        [who.hidden, out.hidden] = [now.is_own === true, now.is_own !== true];
        if (now.sites) {
            const members = now.sites.filter((one) => !one.revoked_s);
            const ear = now.controllers.filter(({ fault }) => !fault);
            figures.sites.set(count(members.length));
            figures.document.set(now.document?.serial ?? "–", now.document ? `made ${briefly(Date.now() / 1000 - now.document.made_s)} ago` : "");
            figures.signers.set(`${now.authority.threshold} of ${now.authority.administrators.length}`, now.authority.administrators.join(", "));
            figures.controllers.set(`${ear.length} of ${now.controllers.length}`, "answer", ear.length < now.controllers.length ? "bad" : null);
            figures.you.set(now.you?.name ?? "–", now.you?.role ?? "");
            const listened = ear.map(({ name, for_s, heard }) => `${name} has heard ${plural(heard, "site")} in ${briefly(for_s)}`);
            say(heard, `${listened.join("; ")}. A site that asks no controller may still hear of what is new from its peers.`);
            picture.show(now);
        }
        show();
    }
    const view = asking("Fleet", "fleet", {}, take);
    return { ...view, end: () => (view.end(), table.end(), picture.end()) };
}

// The sites that need a look, in a sentence each kind.
function trouble(sites) {
    return ["silent", "behind"].flatMap((state) => {
        const some = sites.filter((one) => standingOf(one) === STANDINGS[state]);
        if (some.length === 0) return [];
        const names = some.slice(0, 8).flatMap((one, at) => [at ? ", " : "", h("a", { href: siteAddress(one.name) }, one.name)]);
        const more = some.length > 8 ? ` and ${some.length - 8} more` : "";
        const what = state === "silent" ? "ask no controller any more" : "have not taken the document in force";
        return [h("li", {}, `${plural(some.length, "site")} ${some.length === 1 ? what.replace(/^ask /, "asks ").replace(/^have /, "has ") : what}: `, names, more)];
    });
}
