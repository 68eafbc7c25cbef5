// The map: who has a tunnel with whom. Those that relay are in the middle, the others around, each beside those it is linked to.
// Of very many sites, those that no rule tells apart are one.

import { h, say, svg } from "../dom.js";
import { plural } from "../format.js";
import { siteAddress, standingOf } from "./told.js";

// Up to so many sites each is drawn by itself.
const EACH = 150;
// Up to so many have their name beside them: more would be drawn over each other.
const NAMED = 72;
const LETTER = 6.4;

export class Map {
    constructor() {
        this.element = h("figure", { class: "map" });
        this.note = h("p", { class: "note" });
        this.seen = "";
        this.resized = new ResizeObserver(() => this.draw());
        this.resized.observe(this.element);
    }

    end() {
        this.resized.disconnect();
    }

    show(told) {
        this.told = told;
        this.draw();
    }

    draw() {
        if (!this.told || !this.element.clientWidth) return;
        const { nodes, links } = graph(this.told);
        const width = this.element.clientWidth;
        const seen = JSON.stringify([width, nodes, links]);
        if (seen === this.seen) return;
        this.seen = seen;
        // Who goes through it by keys goes on where he was.
        const focused = this.element.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        this.element.replaceChildren(picture(nodes, links, width));
        if (focused) this.element.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
        const many = this.told.sites.filter((one) => !one.revoked_s).length > EACH;
        const what = many ? "Sites that no rule tells apart are one circle. " : "";
        say(this.note, `${what}${plural(tunnels(this.told), "tunnel")}. The colours say where sites stand; whether a tunnel is up its gateways know.`);
    }
}

// How many tunnels the rules make.
function tunnels({ groups }) {
    let all = 0;
    groups.forEach(({ sites, links }, at) => {
        for (const other of links) {
            if (other === at) all += (sites * (sites - 1)) / 2;
            else if (other > at) all += sites * groups[other].sites;
        }
    });
    return all;
}

// Circles and lines: { key, label, tone, relays, sites, address }, and pairs of their places.
function graph({ groups, sites }) {
    const members = sites.filter((one) => !one.revoked_s);
    const links = [];
    if (members.length > EACH) {
        const nodes = groups.map(({ label, sites: number, relays }, at) => {
            const own = members.filter((one) => one.group === at);
            const worst = own.map(standingOf).sort((a, b) => a.rank - b.rank)[0];
            const only = own.length === 1 ? own[0] : null;
            return { key: `${at}`, label: only ? label : `${label} (${number})`, tone: worst?.tone, word: worst?.word, relays, sites: number, address: only && siteAddress(only.name) };
        });
        groups.forEach(({ links: others }, at) => others.forEach((other) => other >= at && links.push([at, other])));
        return { nodes, links };
    }
    const nodes = members.map((one) => ({ key: one.name, label: one.name, tone: standingOf(one).tone, word: standingOf(one).word, relays: groups[one.group]?.relays, sites: 1, address: siteAddress(one.name) }));
    const linked = groups.map(({ links: others }) => new Set(others));
    for (let one = 0; one < members.length; one += 1) {
        for (let other = one + 1; other < members.length; other += 1) {
            if (linked[members[one].group]?.has(members[other].group)) links.push([one, other]);
        }
    }
    return { nodes, links };
}

// Angles: those that relay share the circle by how many are linked to them, the others follow each other in their parts.
function turn(nodes, links) {
    const neighbors = nodes.map(() => []);
    for (const [one, other] of links) {
        neighbors[one].push(other);
        neighbors[other].push(one);
    }
    const relays = nodes.map((_, at) => at).filter((at) => nodes[at].relays);
    const others = nodes.map((_, at) => at).filter((at) => !nodes[at].relays);
    const parts = new globalThis.Map(relays.map((at) => [at, []]));
    const alone = [];
    for (const at of others) {
        // Beside the one that it shares with the fewest: the hub of its region, not a hub of all.
        const own = neighbors[at].filter((one) => parts.has(one)).sort((a, b) => neighbors[a].length - neighbors[b].length || a - b);
        (parts.get(own[0]) ?? alone).push(at);
    }
    const angles = [];
    const step = (2 * Math.PI) / Math.max(others.length + relays.length, 1);
    let angle = -Math.PI / 2;
    for (const [relay, own] of parts) {
        own.forEach((at, number) => (angles[at] = angle + (number + 1) * step));
        angles[relay] = angle + ((own.length + 1) * step) / 2;
        angle += (own.length + 1) * step;
    }
    alone.forEach((at, number) => (angles[at] = angle + (number + 0.5) * step));
    return { angles, relays: relays.length, others: others.length };
}

function picture(nodes, links, width) {
    const { angles, relays, others } = turn(nodes, links);
    const isNamed = nodes.length <= NAMED;
    const longest = Math.max(0, ...nodes.filter(({ relays: is }) => !is || others === 0).map(({ label }) => label.length));
    const room = 22 + (isNamed ? Math.min(longest, 22) * LETTER : 0);
    const size = Math.min(width, 760);
    const outer = Math.max(size / 2 - room, 60);
    const inner = others === 0 ? outer : relays === 1 ? 0 : outer * 0.45;
    const height = 2 * (outer + room);
    const places = nodes.map(({ relays: is }, at) => {
        const radius = is ? inner : outer;
        return [width / 2 + radius * Math.cos(angles[at]), height / 2 + radius * Math.sin(angles[at])];
    });
    const line = ([one, other]) => {
        if (one === other) return null;
        const [[x1, y1], [x2, y2]] = [places[one], places[other]];
        return svg("line", { x1, y1, x2, y2, "data-ends": `${one} ${other}` });
    };
    const lines = svg("g", { class: links.length > 200 ? "links many" : "links", "aria-hidden": "true" }, links.map(line));
    const circles = nodes.map((node, at) => {
        const [x, y] = places[at];
        const inside = node.relays && others > 0;
        const radius = (node.relays ? 7 : 5) + Math.min(Math.log2(node.sites) * 2, 24);
        const left = Math.cos(angles[at]) < -0.001;
        const degrees = (angles[at] * 180) / Math.PI;
        const along = inside ? "" : `rotate(${left ? degrees + 180 : degrees})`;
        const label = inside
            ? svg("text", { y: -radius - 5, "text-anchor": "middle" }, node.label)
            : svg("text", { x: left ? -radius - 6 : radius + 6, y: 4, "text-anchor": left ? "end" : "start", transform: along }, node.label);
        const content = [svg("title", {}, `${node.label}: ${node.word}`), svg("circle", { r: radius, "data-tone": node.tone }), isNamed || inside || node.sites > 1 ? label : null];
        const around = { class: "node", transform: `translate(${x} ${y})`, "data-at": at };
        return node.address ? svg("a", { ...around, href: node.address, "aria-label": `${node.label}, ${node.word}` }, content) : svg("g", around, content);
    });
    const all = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Who has a tunnel with whom" }, lines, circles);
    const point = (event) => {
        const node = event.type.endsWith("out") ? null : event.target.closest?.(".node");
        all.classList.toggle("points", Boolean(node));
        for (const one of lines.children) one.classList.toggle("own", Boolean(node) && one.dataset.ends.split(" ").includes(node.dataset.at));
    };
    for (const event of ["mouseover", "mouseout", "focusin", "focusout"]) all.addEventListener(event, point);
    return all;
}
