// Elements. What comes from a daemon becomes text and attributes, never a piece of a page.

// An element with attributes and children. Attributes that are functions are listeners.
export function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === "function") element.addEventListener(name, value);
        else if (value === true) element.setAttribute(name, "");
        else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}

// Sets the text, if it is another: a page that stands still costs nothing.
export function say(element, text) {
    const shown = text ?? "";
    if (element.textContent !== String(shown)) element.textContent = shown;
}

// Sets an attribute, if it is another.
export function mark(element, name, value) {
    if (value === null || value === undefined || value === false) {
        if (element.hasAttribute(name)) element.removeAttribute(name);
    } else if (element.getAttribute(name) !== String(value)) {
        element.setAttribute(name, value);
    }
}

// A section with a heading.
export function section(title, ...children) {
    const id = "s-" + title.toLowerCase().replaceAll(/[^a-z]+/g, "-");
    return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

// A number with its name: returns the element, and what sets it.
export function figure(label, title) {
    const value = h("dd");
    const note = h("dd", { class: "note" });
    const element = h("div", { class: "figure", title }, h("dt", {}, label), value, note);
    return {
        element,
        set(text, more = "", tone = null) {
            say(value, text);
            say(note, more);
            mark(value, "data-tone", tone);
        },
    };
}

// The same in a picture.
export function svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}
