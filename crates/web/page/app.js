// The page: which view is shown, keys, light and dark.

import { h, mark, say } from "./dom.js";
import { clock } from "./format.js";
import * as feed from "./feed.js";
import { overview } from "./view/overview.js";
import { peers } from "./view/peers.js";
import { peer } from "./view/peer.js";
import { gateway, firewall } from "./view/gateway.js";
import { script, scripts } from "./view/scripts.js";
import { events } from "./view/events.js";
import { fleet } from "./fleet/fleet.js";

// A view is a function that fills an element and returns { update, tick, end, title }.
const PAGES = [
    { path: "", name: "Overview", view: overview },
    { path: "peers", name: "Peers", view: peers },
    { path: "gateway", name: "Gateway", view: gateway },
    { path: "firewall", name: "Firewall", view: firewall },
    { path: "scripts", name: "Scripts", view: scripts },
    { path: "events", name: "Events", view: events },
    // Only where the page was started for a fleet.
    { path: "fleet", name: "Fleet", view: fleet },
];
const FLEET = PAGES.length - 1;
// What is a part of another page, by the number of that.
const DETAILS = { peer: { view: peer, of: 1 }, script: { view: script, of: 4 } };

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const live = document.getElementById("live");
const keys = document.getElementById("keys");
const last = document.getElementById("last");
let shown = null;

const links = PAGES.map(({ path, name }) => {
    const link = h("a", { href: `#/${path}` }, name);
    nav.append(link);
    return link;
});
links[FLEET].hidden = true;

function show() {
    const [path, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    const place = Math.max(PAGES.findIndex((page) => page.path === path), 0);
    const of = DETAILS[path]?.of ?? place;
    links.forEach((link, at) => mark(link, "aria-current", at === of ? "page" : null));
    links[of].scrollIntoView({ block: "nearest", inline: "nearest" });
    shown?.end?.();
    main.replaceChildren();
    shown = (DETAILS[path]?.view ?? PAGES[place].view)(main, ...rest);
    document.title = `${shown.title ?? PAGES[place].name} · Sidestep`;
    scrollTo(0, 0);
    update("snapshot");
}

function update(what) {
    const is = feed.heard.live ? "live" : feed.heard.at_ms ? "lost" : "waiting";
    mark(live, "data-is", is);
    say(live, is === "live" ? "live" : is === "lost" ? `no answer since ${clock(feed.heard.at_ms)}` : "connecting");
    document.documentElement.classList.toggle("lost", is === "lost");
    if (links[FLEET].hidden === feed.heard.fleet) {
        links[FLEET].hidden = !feed.heard.fleet;
        nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    say(last, feed.heard.fleet ? PAGES.length : FLEET);
    if (feed.heard.at_ms) shown?.update?.(what);
}

function turn() {
    const root = document.documentElement;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const is = root.dataset.theme ?? (dark ? "dark" : "light");
    root.dataset.theme = is === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    document.dispatchEvent(new Event("theme"));
}

// The rows that keys go through: those of the first table in sight.
function step(by) {
    const rows = [...main.querySelectorAll(".row.leads")].filter((row) => row.offsetParent);
    if (rows.length === 0) return;
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
    next.querySelector("a")?.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
}

addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
    const writes = event.target.matches("input, select, textarea");
    if (event.key === "Escape") {
        if (writes) event.target.blur();
        else main.querySelector("a.back")?.click();
        return;
    }
    if (writes) return;
    const page = PAGES[Number(event.key) - 1];
    if (page && !links[Number(event.key) - 1].hidden) location.hash = `#/${page.path}`;
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "t") turn();
    else if (event.key === "?") keys.showModal();
    else if (event.key === "/") {
        event.preventDefault();
        main.querySelector("input[type=search]")?.focus();
    }
});

document.getElementById("theme").addEventListener("click", turn);
document.getElementById("help").addEventListener("click", () => keys.showModal());
addEventListener("hashchange", () => {
    show();
    main.focus({ preventScroll: true });
});
feed.follow(update);
setInterval(() => !document.hidden && shown?.tick?.(), 250);
feed.start();
show();
