// A site: what it is and may, its peers, when it asked last.

import { figure, h, section } from "../dom.js";
import { Table, linked } from "../table.js";
import * as feed from "../feed.js";
import { briefly } from "../format.js";
import { draft } from "./difference.js";
import { asking, button, few, lastHeard, outcome, siteAddress, standingOf } from "./told.js";

export function site(main, name = "") {
    const is = h("p", { class: "is" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span"));
    main.append(h("div", { class: "bar" }, h("h1", {}, h("a", { class: "back", href: "#/fleet" }, "Fleet"), h("span", { class: "slash", "aria-hidden": "true" }, "/"), name), is));
    const fault = outcome();
    const figures = { role: figure("Role"), region: figure("Region"), zone: figure("Zone"), serial: figure("Has document"), asked: figure("Asked") };
    const pairs = h("dl", { class: "facts" });
    const peers = new Table({
        label: "Peers",
        key: (row) => row.name,
        link: (row) => siteAddress(row.name),
        sort: { by: "name", down: false },
        empty: "Its gateway has no peer.",
        columns: [
            { name: "name", label: "Peer", class: "name", sort: (row) => row.name, show: (cell, row) => linked(cell, row.name, siteAddress(row.name)) },
            { name: "keepalive", label: "Keepalive", class: "number", sort: (row) => row.keepalive_s ?? null, show: (_, row) => (row.keepalive_s ? `${row.keepalive_s} s` : "–") },
            { name: "networks", label: "Networks behind it", class: "wide code", show: (_, row) => few(row.networks) },
        ],
    });
    peers.element.classList.add("behind");
    const change = outcome();
    const out = button("Draft to take it out", async () => {
        const answer = await feed.send("fleet/draft", JSON.stringify({ revoke: [name] }));
        made?.end();
        made = answer.error ? null : draft(answer);
        if (made) change.show(made.element);
        else change.fault(answer.error);
    });
    const all = h("div", { hidden: true }, h("dl", { class: "figures" }, Object.values(figures).map((one) => one.element)), section("What it is", pairs), section("Peers by the rules", peers.element), section("Take it out", h("p", { class: "note" }, "Its name and keys stay taken. Nothing is in force before administrators have signed it."), h("div", { class: "acts" }, out), change.element));
    main.append(fault.element, all);
    let made = null;
    const view = asking(name, "fleet/site", { name }, (told) => {
        if (told.error) return fault.fault(told.error);
        fault.clear();
        all.hidden = false;
        const { word, tone } = standingOf(told);
        is.firstElementChild.dataset.tone = tone;
        is.lastElementChild.textContent = `${word}. ${told.revoked_s ? "" : lastHeard(told.heard)}`;
        figures.role.set(told.role);
        figures.region.set(told.region ?? "–");
        figures.zone.set(told.zone ?? "–");
        figures.serial.set(told.heard.serial ?? "–", `of ${told.serial}`);
        figures.asked.set(briefly(told.heard.ago_s), told.heard.by ?? "");
        const facts = {
            Networks: told.networks.join(", ") || "none",
            "May take by itself": told.may_take.join(", "),
            "Its agent": told.address,
            "Hops in": told.hops_in ?? "not told here",
            "Stands by with": told.standby,
            "Not known how they are met": told.unmet.join(", "),
            "No way leads to": told.unreachable.count ? few(told.unreachable) : null,
        };
        pairs.replaceChildren(...Object.entries(facts).filter(([, value]) => value).flatMap(([label, value]) => [h("dt", {}, label), h("dd", { class: "code" }, value)]));
        peers.update(told.peers);
        out.hidden = Boolean(told.revoked_s);
    });
    return { ...view, end: () => (view.end(), peers.end(), made?.end()) };
}
