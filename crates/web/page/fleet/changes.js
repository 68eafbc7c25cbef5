// Changes: who is let in, other rules, and drafts that were signed elsewhere.

import { h, mark, say, section } from "../dom.js";
import * as feed from "../feed.js";
import { briefly } from "../format.js";
import { difference, draft } from "./difference.js";
import { asking, button, head, outcome } from "./told.js";

// A place for a draft, or for what it would do.
function workshop() {
    const said = outcome();
    let made = null;
    const put = (next) => {
        made?.end();
        made = next;
        if (next) said.show(next.element);
    };
    return {
        element: said.element,
        clear: () => (put(null), said.clear()),
        put,
        async make(wanted) {
            const answer = await feed.send("fleet/draft", JSON.stringify(wanted));
            if (!answer.error) return put(draft(answer));
            put(null);
            said.fault(answer.error);
        },
        fault: (why) => (put(null), said.fault(why)),
        end: () => made?.end(),
    };
}

function card({ id, invited_by, at_s, site, fault }, boxes) {
    const ago = `${briefly(Date.now() / 1000 - at_s)} ago, invited by ${invited_by}`;
    if (fault) return h("li", { class: "card" }, h("p", { class: "fault" }, `Application ${id.slice(0, 8)}: ${fault}`), h("p", { class: "note" }, ago));
    const box = h("input", { type: "checkbox", id: `a-${id}`, value: id });
    boxes.push({ box, name: site.name });
    const facts = {
        Role: [site.role, site.region, site.zone].filter(Boolean).join(" · "),
        Networks: site.networks.join(", ") || "none",
        "May take": site.may_take.join(", "),
        "Hops in": site.hops_in,
        Identity: site.identity,
    };
    const pairs = Object.entries(facts).filter(([, value]) => value).flatMap(([label, value]) => [h("dt", {}, label), h("dd", { class: label === "Role" ? null : "code" }, value)]);
    return h("li", { class: "card" }, h("label", { class: "pick", for: `a-${id}` }, box, h("b", {}, site.name), h("span", { class: "note" }, ago)), h("dl", { class: "facts" }, pairs));
}

export function applications(main) {
    const top = head(main, "applications");
    const [list, none] = [h("ul", { class: "cards" }), h("p", { class: "none big", hidden: true }, "Nobody waits to be let in. `sidestep control invite --site NAME` invites a site.")];
    const place = workshop();
    const why = h("input", { type: "text", id: "why", placeholder: "Why not", "aria-label": "Why it is turned down", spellcheck: "false" });
    const chosen = () => boxes.filter(({ box }) => box.checked);
    const some = (act) => async () => {
        if (chosen().length === 0) return place.fault("Choose one first.");
        await act(chosen());
    };
    const approve = button("Draft to let them in", some((them) => place.make({ approve: them.map(({ box }) => box.value) })));
    const refuse = button(
        "Turn down",
        some(async (them) => {
            if (!why.value.trim()) return place.fault("Say why, for the log and for the site.");
            for (const { box, name } of them) {
                const answer = await feed.send("fleet/refuse", JSON.stringify({ id: box.value, why: why.value.trim() }));
                if (answer.error) return place.fault(`${name}: ${answer.error}`);
            }
            why.value = "";
            place.clear();
            await view.again();
        }),
        { class: "act plain" },
    );
    const acts = h("div", { class: "bar acts" }, approve, why, refuse);
    const compare = h("p", { class: "note" }, "Compare the identity with the one that the site shows, if others may have read the invitation.");
    main.append(list, none, compare, acts, place.element);
    let [boxes, seen] = [[], ""];
    const view = asking("Applications", "fleet/applications", {}, (told) => {
        const waiting = (told.applications ?? []).filter(({ state }) => state === "waiting");
        top.update({ error: told.error, waiting: waiting.length });
        if (told.error) return;
        none.hidden = waiting.length > 0;
        [list.hidden, acts.hidden, compare.hidden] = Array(3).fill(waiting.length === 0);
        const may = told.you?.role !== "viewer";
        [why.hidden, refuse.hidden] = [!may, !may];
        const now = JSON.stringify(waiting);
        if (now === seen) return;
        seen = now;
        const were = new Set(chosen().map(({ box }) => box.value));
        boxes = [];
        list.replaceChildren(...waiting.map((one) => card(one, boxes)));
        for (const { box } of boxes) box.checked = were.has(box.value);
    });
    return { ...view, end: () => (view.end(), place.end()) };
}

export function rules(main) {
    const top = head(main, "rules");
    const place = workshop();
    const text = h("textarea", { id: "rules", rows: "22", spellcheck: "false", autocomplete: "off", wrap: "off", input: () => mark(said, "hidden", text.value === known) });
    const said = h("p", { class: "note", hidden: true }, "Not as it is in force.");
    const back = button("As it is in force", () => ((text.value = known), mark(said, "hidden", true), place.clear()), { class: "act plain" });
    const show = button("What would be different?", () => place.make({ rules: text.value }));
    const label = h("label", { class: "note", for: "rules" }, "Who has a tunnel with whom, who relays, who may reach whom, and where controllers are (docs/fleet.md has the form)");
    main.append(section("Rules in force", label, text, h("div", { class: "bar acts" }, show, back, said), place.element));
    let known = null;
    const view = asking("Rules", "fleet/rules", {}, (told) => {
        top.update(told);
        if (told.error) return;
        // What somebody has written stays.
        if (known === null || text.value === known) text.value = told.text;
        known = told.text;
        mark(said, "hidden", text.value === known);
    });
    return { ...view, end: () => (view.end(), place.end()) };
}

export function handIn(main) {
    const top = head(main, "hand-in");
    const place = workshop();
    const file = h("input", { type: "file", id: "draft", accept: ".draft,application/json", change: () => look() });
    const verdict = h("p", { class: "verdict", role: "status" });
    const hand = button("Hand it in", () => publish(), { hidden: true });
    main.append(section("A draft that was signed", h("label", { class: "note", for: "draft" }, "It is shown once more, and put in force if enough have signed it."), file, verdict, hand, place.element));
    let text = null;

    function clear(words) {
        hand.hidden = true;
        say(verdict, words);
        place.clear();
    }

    async function look() {
        clear("");
        const chosen = file.files[0];
        if (!chosen) return;
        text = await chosen.text();
        const told = await feed.send("fleet/check", text);
        if (told.error) return place.fault(told.error);
        const signers = told.signers.length ? `signed by ${told.signers.join(", ")}` : "signed by nobody";
        const why = told.overtaken ?? told.lacks ?? (told.may_publish ? null : "you may look, and not hand in: that takes the role publisher");
        const tone = why ? "warn" : "good";
        verdict.replaceChildren(h("span", { class: "dot", "data-tone": tone, "aria-hidden": "true" }), `${chosen.name}: ${signers}${why ? `. ${why}` : ""}`);
        hand.hidden = Boolean(why);
        place.put(difference(told.difference));
    }

    async function publish() {
        const answer = await feed.send("fleet/publish", text);
        if (answer.error) return place.fault(answer.error);
        file.value = "";
        clear("It is in force: sites are told.");
    }
    const view = asking("Hand in", "fleet", {}, (told) => top.update(told));
    return { ...view, end: () => (view.end(), place.end()) };
}
