// What the controllers tell of the fleet, asked for while somebody looks; and what the fleet's pages have in common.

import { h, mark, say } from "../dom.js";
import * as feed from "../feed.js";
import { briefly } from "../format.js";

const EVERY_MS = 5000;

// How a site stands: what that is called, and how it is marked.
export const STANDINGS = {
    silent: { word: "silent", tone: "bad", rank: 0 },
    behind: { word: "behind", tone: "warn", rank: 1 },
    unknown: { word: "not heard", tone: "idle", rank: 2 },
    current: { word: "up to date", tone: "good", rank: 3 },
    revoked: { word: "taken out", tone: "idle", rank: 4 },
};
export const standingOf = (site) => (site.revoked_s ? STANDINGS.revoked : (STANDINGS[site.heard?.state] ?? STANDINGS.unknown));
export const siteAddress = (name) => `#/fleet/site/${encodeURIComponent(name)}`;
export const few = ({ count, some }) => (count === 0 ? "none" : some.join(", ") + (count > some.length ? ` and ${count - some.length} more` : ""));

// When a site asked last, as a sentence.
export function lastHeard({ ago_s, by, serial } = {}) {
    if (ago_s === null || ago_s === undefined) return "No controller that answers has heard it.";
    return `It asked ${by} ${briefly(ago_s)} ago, and had document ${serial ?? "none"} then.`;
}

const SUBPAGES = [
    ["", "Map"],
    ["reach", "Reach"],
    ["applications", "Applications"],
    ["rules", "Rules"],
    ["hand-in", "Hand in"],
    ["log", "Log"],
];

// How many wait to be let in, as far as was told on one of the pages.
let waiting = 0;

// The beginning of a page of the fleet: its name, the ways to the others, what is wrong.
export function head(main, at, ...more) {
    const links = SUBPAGES.map(([path, name]) => h("a", { href: `#/fleet${path && "/"}${path}`, "aria-current": path === at ? "page" : null }, name));
    const number = h("b");
    links[2].append(number);
    const count = () => {
        number.hidden = !waiting;
        say(number, waiting);
    };
    count();
    const problems = h("ul", { class: "problems" });
    // Where they have no room, the one that is shown is in sight.
    requestAnimationFrame(() => links.find((link) => link.hasAttribute("aria-current"))?.scrollIntoView({ block: "nearest", inline: "nearest" }));
    main.append(h("div", { class: "bar" }, h("h1", {}, "Fleet"), h("nav", { class: "sub", "aria-label": "Fleet" }, links), ...more), problems);
    return {
        // Shows what is wrong with the fleet as a whole.
        update(told, wrong = []) {
            waiting = told.waiting ?? waiting;
            count();
            const controllers = (told.controllers ?? []).filter(({ fault }) => fault).map(({ name, fault }) => `${name} does not answer: ${fault}`);
            const all = [told.error, told.fault, ...controllers].filter(Boolean).map((one) => h("li", {}, one));
            problems.replaceChildren(...all, ...wrong);
        },
    };
}

// Asks for a document now and then, and hands each to `take`. Returns what a view returns.
export function asking(title, path, query, take) {
    let [next, asks, ended] = [0, false, false];
    async function ask() {
        asks = true;
        const begun = Date.now();
        const told = await feed.ask(path, query, true);
        // Of a large fleet it is asked less often.
        next = Date.now() + Math.max(EVERY_MS, 20 * (Date.now() - begun));
        asks = false;
        if (!ended) take(told ?? { error: "The page's server does not answer." });
    }
    return {
        title,
        again: ask,
        tick: () => !asks && Date.now() > next && ask(),
        end: () => (ended = true),
    };
}

// A place that says what came of something.
export function outcome() {
    const element = h("div", { class: "said", role: "status" });
    return {
        element,
        clear: () => element.replaceChildren(),
        fault: (why) => element.replaceChildren(h("p", { class: "fault" }, why)),
        show: (...children) => element.replaceChildren(...children),
    };
}

// A button that does nothing while what it did is not over.
export function button(text, act, attributes = {}) {
    const element = h("button", { type: "button", class: "act", ...attributes, click: press }, text);
    async function press() {
        mark(element, "disabled", true);
        try {
            await act();
        } finally {
            mark(element, "disabled", false);
        }
    }
    return element;
}
