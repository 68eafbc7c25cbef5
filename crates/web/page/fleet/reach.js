// Who may reach whom: a matrix, and why, for two sites or two addresses.

import { h, say, section } from "../dom.js";
import * as feed from "../feed.js";
import { plural } from "../format.js";
import { asking, head, outcome, siteAddress } from "./told.js";

// Rows and columns that somebody can take in.
const MOST = 40;
const WORDS = { opens: "may open connections to", answers: "may only answer", none: "exchanges nothing with" };

// A selector in words.
function select(selector) {
    const one = { sites: ["site", "sites"], roles: ["role", "roles"], regions: ["region", "regions"], zones: ["zone", "zones"] };
    const parts = Object.entries(selector).map(([name, list]) => `${one[name]?.[list.length > 1 ? 1 : 0] ?? name} ${list.join(", ")}`);
    return parts.length ? parts.join(" in ") : "all sites";
}

function because(verdict) {
    if (verdict === "no_rules") return "there is no rule of who may reach whom, so everybody may";
    if (verdict === "refused") return "no rule allows it";
    const { number, rule } = verdict.allowed;
    return `rule ${number} allows it: from ${select(rule.from)} to ${select(rule.to)}`;
}

const allows = (verdict) => verdict !== "refused";

// What an explanation says, in sentences.
function sentences(said) {
    const [from, to] = [said.from, said.to];
    const name = ({ site, in: network }) => (network ? `${site} (${network})` : site);
    const out = [from, to].filter(({ is_revoked }) => is_revoked).map(({ site }) => `${site} was taken out: nothing of it goes anywhere.`);
    const forth = allows(said.verdict) ? `${from.site} may open connections to ${to.site}: ${because(said.verdict)}.` : `${from.site} may not open connections to ${to.site}: ${because(said.verdict)}.`;
    const back = allows(said.back) ? `${to.site} may open connections to ${from.site}: ${because(said.back)}.` : `${to.site} may only answer: ${because(said.back)} the other way.`;
    const begins = allows(said.verdict) !== allows(said.back) ? "Tunnels carry the packets of both ways; who may begin is for the gateways' firewalls." : null;
    const neither = !allows(said.verdict) && !allows(said.back);
    const tone = said.passes ? (allows(said.verdict) ? "good" : "warn") : "bad";
    const verdict = !said.passes ? "nothing passes" : allows(said.verdict) ? "reaches it" : "only answers";
    return { tone, verdict: `${name(from)} → ${name(to)}: ${verdict}`, lines: [...out, forth, neither ? null : back, begins].filter(Boolean) };
}

function way({ way: hops, from }) {
    if (!hops) return h("p", {}, "No way leads there: no tunnels, over sites that relay, join the two.");
    const names = [from.site, ...hops.map(({ to }) => to)];
    const path = names.flatMap((one, at) => [at ? " → " : "", h("a", { href: siteAddress(one) }, one)]);
    const links = hops.map((hop) => h("li", {}, `${hop.from} – ${hop.to}: link ${hop.number}, between ${select(hop.rule.between)} and ${select(hop.rule.and)}${hop.rule.same_region ? ", in the same region" : ""}`));
    return h("div", {}, h("p", {}, "The way: ", path), h("ul", { class: "plain" }, links));
}

const networks = ({ site, networks: some }) => h("p", {}, `Behind ${site}: `, h("span", { class: "code" }, some.join(", ") || "nothing"));

export function reach(main) {
    const top = head(main, "reach");
    const said = outcome();
    const list = h("datalist", { id: "sites" });
    const input = (id, placeholder) => h("input", { type: "text", id, required: true, list: "sites", spellcheck: "false", autocomplete: "off", placeholder });
    const [from, to] = [input("from", "a site, or an address behind it"), input("to", "another")];
    const form = h(
        "form",
        { class: "explain two", submit: (event) => (event.preventDefault(), ask()) },
        h("div", {}, h("label", { for: "from" }, "From"), from),
        h("div", {}, h("label", { for: "to" }, "To"), to),
        h("button", { type: "submit" }, "Explain"),
    );
    const filter = h("input", { type: "search", placeholder: "Filter  /", "aria-label": "Filter rows and columns", spellcheck: "false", input: () => draw() });
    const shown = h("p", { class: "shown", role: "status" });
    const place = h("div", { class: "matrix", tabindex: "0", role: "region", "aria-label": "Who may reach whom" });
    const legend = h("p", { class: "note" }, "Rows reach columns. ● may open connections, ○ may only answer, – exchanges nothing. Sites that no rule tells apart are one row.");
    main.append(section("Explain", form, list, said.element), section("Matrix", h("div", { class: "bar" }, filter, shown), place, legend));
    let [told, drawn] = [null, ""];

    async function ask() {
        const answer = await feed.ask("fleet/explain", { from: from.value, to: to.value }, true);
        if (!answer || answer.error) return said.fault(answer?.error ?? "The page's server does not answer.");
        const { tone, verdict, lines } = sentences(answer);
        const title = h("p", { class: "verdict" }, h("span", { class: "dot", "data-tone": tone, "aria-hidden": "true" }), verdict);
        said.show(title, ...lines.map((line) => h("p", {}, line)), way(answer), networks(answer.from), networks(answer.to));
    }

    const relation = (groups, one, other) => (groups[one].reach.includes(other) ? "opens" : groups[other].reach.includes(one) ? "answers" : "none");
    const SIGNS = { opens: "●", answers: "○", none: "–" };

    function draw() {
        const { groups = [], sites = [] } = told ?? {};
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const member = groups.map((_, at) => sites.find((one) => one.group === at)?.name);
        const fits = (at) => words.every((word) => sites.some((one) => one.group === at && one.name.toLowerCase().includes(word)) || groups[at].label.toLowerCase().includes(word));
        const all = groups.map((_, at) => at).filter(fits);
        const some = all.slice(0, MOST);
        say(shown, all.length > some.length ? `${some.length} of ${all.length} rows: filter to see others` : plural(all.length, "row"));
        const now = JSON.stringify([some, groups]);
        if (now === drawn) return;
        drawn = now;
        const label = (at) => (groups[at].sites > 1 ? `${groups[at].label} (${groups[at].sites})` : groups[at].label);
        const cell = (one, other) => {
            if (one === other && groups[one].sites === 1) return h("td", {});
            const is = relation(groups, one, other);
            const second = one === other ? sites.filter((site) => site.group === one)[1]?.name : member[other];
            const press = () => {
                [from.value, to.value] = [member[one], second];
                ask();
                from.focus();
            };
            return h("td", {}, h("button", { type: "button", "data-is": is, title: `${label(one)} ${WORDS[is]} ${label(other)}`, "aria-label": `${label(one)} ${WORDS[is]} ${label(other)}`, click: press }, SIGNS[is]));
        };
        const columns = some.map((at) => h("th", { scope: "col" }, h("span", {}, label(at))));
        const rows = some.map((one) => h("tr", {}, h("th", { scope: "row" }, label(one)), some.map((other) => cell(one, other))));
        place.replaceChildren(some.length ? h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), columns)), h("tbody", {}, rows)) : h("p", { class: "none" }, "No site is like that."));
    }

    return asking("Who reaches whom", "fleet", {}, (now) => {
        top.update(now);
        if (!now.sites) return;
        told = now;
        if (list.childElementCount !== now.sites.length) list.replaceChildren(...now.sites.slice(0, 1000).map(({ name }) => h("option", { value: name })));
        draw();
    });
}
