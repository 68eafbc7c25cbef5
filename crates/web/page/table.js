// A table of rows that change in place. Of many rows only those in sight are there: what a browser does for a frame, it does
// for every row that there is.

import { h, say, mark } from "./dom.js";

// Up to so many rows all are there.
const ALL = 100;
// Rows come and go by so many.
const STEP = 8;

// columns: [{ name, label, class, sort: (row) => value, show: (cell, row) => text or nothing, first: "down" }]
// key: (row) => string; link: (row) => address or null
export class Table {
    constructor({ label, columns, key, link, sort, empty, preference }) {
        Object.assign(this, { columns, key, link, empty, preference });
        this.rows = new Map();
        this.order = [];
        const remembered = preference && JSON.parse(localStorage.getItem(preference) ?? "null");
        this.sort = columns.some((column) => column.name === remembered?.by) ? remembered : (sort ?? null);
        this.heads = new Map();
        const head = h("div", { role: "row", class: "row head" }, columns.map((column) => this.head(column)));
        this.body = h("div", { role: "rowgroup", class: "body" });
        this.none = h("p", { class: "none", hidden: true }, empty ?? "None.");
        this.grid = h("div", { role: "table", "aria-label": label, class: "grid" }, h("div", { role: "rowgroup" }, head), this.body);
        this.element = h("div", { class: "table" }, this.grid, this.none);
        this.seer = () => this.look();
        addEventListener("scroll", this.seer, { passive: true });
        this.markSort();
    }

    head(column) {
        const cell = h("div", { role: "columnheader", class: `cell ${column.class ?? ""}` });
        if (column.sort) {
            const press = () => this.sortBy(column);
            cell.append(h("button", { type: "button", click: press }, column.label));
        } else {
            cell.append(column.label);
        }
        this.heads.set(column.name, cell);
        return cell;
    }

    sortBy(column) {
        const turned = this.sort?.by === column.name;
        const down = turned ? !this.sort.down : column.first === "down";
        this.sort = { by: column.name, down };
        if (this.preference) localStorage.setItem(this.preference, JSON.stringify(this.sort));
        this.markSort();
        this.update(this.shown, true);
    }

    markSort() {
        for (const [name, cell] of this.heads) {
            mark(cell, "aria-sort", this.sort?.by === name ? (this.sort.down ? "descending" : "ascending") : null);
        }
    }

    sorted(rows) {
        const column = this.sort && this.columns.find((one) => one.name === this.sort.by);
        if (!column) return rows;
        const sign = this.sort.down ? -1 : 1;
        const value = new Map(rows.map((row) => [row, column.sort(row)]));
        const compare = (a, b) => {
            const [x, y] = [value.get(a), value.get(b)];
            // What is not known comes last, whichever way.
            if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1;
            if (y === null || y === undefined) return -1;
            return typeof x === "string" ? sign * x.localeCompare(y, "en", { numeric: true }) : sign * (x - y);
        };
        return [...rows].sort(compare);
    }

    // Shows these rows. Their order stays while somebody points at one, unless it was asked for.
    update(rows = [], reorder = false) {
        this.shown = rows;
        const before = this.rows;
        this.rows = new Map();
        for (const row of rows) {
            const key = this.key(row);
            const kept = before.get(key) ?? { element: null, cells: null };
            kept.row = row;
            this.rows.set(key, kept);
            before.delete(key);
        }
        for (const { element } of before.values()) element?.remove();
        const still = before.size === 0 && rows.length === this.order.length && this.body.matches(":hover");
        if (!still || reorder) this.order = this.sorted(rows).map((row) => this.key(row));
        this.lay();
        this.none.hidden = rows.length > 0;
        this.grid.hidden = rows.length === 0;
    }

    // Puts the rows in their places: all, or those in sight and some around them. Those that come are brought up to date; all
    // are, unless only the place has changed.
    lay([first, end] = this.range(true), moved = false) {
        const order = this.order.slice(first, end);
        const there = new Set(order);
        for (const element of [...this.body.children]) if (!there.has(element.key)) element.remove();
        let place = this.body.firstElementChild;
        order.forEach((key, at) => {
            const kept = this.rows.get(key);
            if (!kept.element) this.make(kept, key);
            if (!moved || !kept.element.isConnected) {
                mark(kept.element, "aria-rowindex", this.windowed ? first + at + 2 : null);
                this.show(kept);
            }
            if (kept.element === place) place = place.nextElementSibling;
            else this.body.insertBefore(kept.element, place);
        });
        this.laid = [first, end];
    }

    // Which rows are to be there. All have the same height then.
    range(anew = false) {
        this.windowed = this.order.length > ALL;
        mark(this.grid, "aria-rowcount", this.windowed ? this.order.length + 1 : null);
        if (!this.windowed) {
            this.body.style.padding = "";
            return [0, this.order.length];
        }
        if (anew) this.height = this.body.firstElementChild?.offsetHeight || this.height || 34;
        const top = this.body.getBoundingClientRect().top;
        const at = (distance) => STEP * Math.floor(distance / this.height / STEP);
        const first = Math.min(Math.max(at(-top) - STEP, 0), this.order.length);
        const end = Math.min(Math.max(at(innerHeight - top) + 3 * STEP, first), this.order.length);
        this.body.style.padding = `${first * this.height}px 0 ${(this.order.length - end) * this.height}px`;
        return [first, end];
    }

    // Where the page is scrolled to another place, other rows are in sight.
    look() {
        if (!this.windowed) return;
        const range = this.range();
        if (range.some((end, at) => end !== this.laid[at])) this.lay(range, true);
    }

    make(kept, key) {
        kept.cells = this.columns.map((column) => h("div", { role: "cell", class: `cell ${column.class ?? ""}` }));
        kept.element = h("div", { role: "row", class: "row" }, kept.cells);
        kept.element.key = key;
        if (!this.link) return;
        kept.element.classList.add("leads");
        kept.element.addEventListener("click", (event) => {
            if (!event.target.closest("a") && !getSelection().toString()) location.hash = this.link(kept.row);
        });
    }

    show(kept) {
        this.columns.forEach((column, at) => {
            const shown = column.show(kept.cells[at], kept.row);
            if (shown !== undefined) say(kept.cells[at], shown);
        });
    }

    end() {
        removeEventListener("scroll", this.seer);
    }
}

// A column of words, and one of numbers, which is sorted.
export const text = (name, label, of, className = "") => ({ name, label, class: className, show: (_, row) => of(row) });
export const number = (name, label, of, how) => ({ name, label, class: "number", first: "down", sort: (row) => of(row) ?? null, show: (_, row) => how(of(row)) });

// A cell with a link in it, made once.
export function linked(cell, text, address) {
    let link = cell.firstElementChild;
    if (!link) cell.append((link = h("a")));
    say(link, text);
    mark(link, "href", address);
}

// A cell with a coloured dot and a word.
export function toned(cell, word, tone) {
    let dot = cell.firstElementChild;
    if (!dot) {
        dot = h("span", { class: "dot", "aria-hidden": "true" });
        cell.append(dot, h("span"));
    }
    mark(dot, "data-tone", tone);
    say(cell.lastElementChild, word);
}
