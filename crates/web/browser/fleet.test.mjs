// The fleet's part of the page in a real browser: about a controller in the stage's own process (examples/stage.rs).

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, look, stage, until } from "./browser.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const VIEWS = ["fleet", "fleet/reach", "fleet/applications", "fleet/rules", "fleet/hand-in", "fleet/log", "fleet/site/oslo"];
const HOSTILE = '<img src=x onerror="document.title=1">';

let browser;
let scene;
before(async () => {
    browser = await launch();
    scene = await stage();
});
after(async () => {
    await browser?.close();
    await scene?.end();
});

// Signs a file as one of the administrators, where it is saved.
async function sign(who, file) {
    scene.say(`sign ${who} ${file}`);
    await until(`${who} signs`, () => existsSync(`${file}.signed-by-${who}`));
    return `${file}.signed-by-${who}`;
}

// Saves the draft that is shown.
async function save(tab) {
    const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("link", { name: "Save the draft" }).click()]);
    const file = join(scene.folder, download.suggestedFilename());
    await download.saveAs(file);
    return file;
}

for (const width of [390, 1024, 1600]) {
    for (const theme of ["light", "dark"]) {
        test(`axe finds nothing about the fleet, and nothing is cut off, at ${width} px in the ${theme}`, async () => {
            const { tab, faults, origin, close } = await look(browser, scene.url, { width, theme });
            for (const view of VIEWS) {
                await tab.goto(`${origin}/#/${view}`);
                await tab.locator("main h1").first().waitFor();
                await until("something of it", () => tab.locator("main :is(.body .row, .matrix td button, .card, .note, .facts dd):visible").count());
                if (view === "fleet/reach") {
                    await tab.getByLabel("From").fill("graz");
                    await tab.getByLabel("To", { exact: true }).fill("fd00:e::1");
                    await tab.keyboard.press("Enter");
                    await tab.locator(".said .verdict", { hasText: "only answers" }).waitFor();
                }
                await tab.evaluate(AXE);
                const { violations } = await tab.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
                const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
                assert.deepEqual(found, [], `#/${view}`);
                const [wide, has] = await tab.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
                assert.ok(wide <= has, `#/${view} is ${wide} px wide at ${has}`);
            }
            assert.deepEqual(faults, []);
            await close();
        });
    }
}

test("the map says who is silent, and leads to it by keys", async () => {
    const { tab, faults, close } = await look(browser, scene.url);
    await tab.keyboard.press("7");
    await tab.locator(".problems li", { hasText: "1 site asks no controller any more: tallinn" }).waitFor();
    await tab.locator(".problems li", { hasText: "1 site has not taken the document in force: lisboa" }).waitFor();
    // Three hubs with each other, and one for each of the others.
    assert.equal(await tab.locator(".map line").count(), 22);
    await tab.locator('.map a[href="#/fleet/site/tallinn"]').focus();
    assert.equal(await tab.locator(".map line.own").count(), 1);
    await tab.keyboard.press("Enter");
    await tab.locator("h1", { hasText: "tallinn" }).waitFor();
    await tab.locator(".is", { hasText: "silent. It asked control-1 1 h ago" }).waitFor();
    await tab.locator(".facts dd", { hasText: "2001:db8:9::/64" }).waitFor();
    await tab.keyboard.press("Escape");
    await tab.locator(".sites .body .row").first().waitFor();
    assert.ok(!(await tab.locator("main").textContent()).includes("2001:db8"), "no prefix beside the map");
    await tab.keyboard.press("/");
    await tab.keyboard.type("plant south");
    await until("the filter", async () => (await tab.locator(".sites .body .name").allTextContents()).join() === "graz,milano");
    assert.deepEqual(faults, []);
    await close();
});

test("rules are changed by a difference, two signatures elsewhere, and handing in", async () => {
    const { tab, faults, origin, close } = await look(browser, scene.url, { path: "fleet/rules" });
    const text = tab.locator("#rules");
    await until("the rules", async () => (await text.inputValue()).includes("office"));
    const known = await text.inputValue();
    await text.fill(known.replaceAll("[[reach]]", "[[rich]]").replaceAll("[reach.", "[rich."));
    await tab.getByRole("button", { name: "What would be different?" }).click();
    await tab.locator(".said .fault", { hasText: "rich" }).waitFor();
    await text.fill(known.replace('"office"]', '"office", "plant"]'));
    await tab.getByRole("button", { name: "What would be different?" }).click();
    await tab.locator(".differs .row", { hasText: "graz" }).waitFor();
    const file = await save(tab);
    assert.ok(file.endsWith("rules.draft"));
    const one = await sign("ada", file);
    await tab.goto(`${origin}/#/fleet/hand-in`);
    await tab.locator("#draft").setInputFiles(one);
    await tab.locator(".verdict", { hasText: "signed by ada. " }).waitFor();
    assert.ok(!(await tab.getByRole("button", { name: "Hand it in" }).isVisible()), "one of two is not enough");
    const two = await sign("ben", one);
    await tab.locator("#draft").setInputFiles(two);
    await tab.locator(".verdict", { hasText: /signed by ada, ben$/ }).waitFor();
    await tab.locator(".changes", { hasText: "rules, or where controllers are" }).waitFor();
    await tab.getByRole("button", { name: "Hand it in" }).click();
    await tab.locator(".verdict", { hasText: "in force" }).waitFor();
    await tab.locator("#draft").setInputFiles(two);
    await tab.locator(".verdict", { hasText: "make it anew" }).waitFor();
    await tab.goto(`${origin}/#/fleet/log`);
    await tab.locator(".log .row", { hasText: "published document 3" }).waitFor();
    assert.deepEqual(faults, []);
    await close();
});

test("who has applied is let in by a draft, or turned down with a reason", async () => {
    const { tab, faults, close } = await look(browser, scene.url, { path: "fleet/applications" });
    await tab.getByRole("button", { name: "Draft to let them in" }).click();
    await tab.locator(".said .fault", { hasText: "Choose one first" }).waitFor();
    await tab.getByLabel("malmo").check();
    await tab.getByRole("button", { name: "Draft to let them in" }).click();
    await tab.locator(".changes li", { hasText: "+ site malmo comes" }).waitFor();
    assert.ok((await save(tab)).endsWith("malmo.draft"));
    await tab.getByLabel("malmo").uncheck();
    await tab.getByLabel("porto").check();
    await tab.getByLabel("Why it is turned down").fill("nobody knows it");
    await tab.getByRole("button", { name: "Turn down" }).click();
    await until("it is gone", async () => (await tab.locator(".card").count()) === 1);
    assert.deepEqual(faults, []);
    await close();
});

test("two thousand sites are nine circles, a matrix that can be read, and a table that scrolls", async () => {
    const own = await stage(3, { environment: { STAGE_SITES: "2000", STAGE_ROLE: "viewer", STAGE_HOSTILE: HOSTILE } });
    const { tab, faults, origin, close } = await look(browser, own.url, { path: "fleet" });
    await tab.locator(".map .node text", { hasText: "spoke · north · office (2006)" }).waitFor();
    assert.ok((await tab.locator(".map .node").count()) < 15);
    await tab.locator('.sites [role=table][aria-rowcount="2024"]').waitFor();
    await tab.goto(`${origin}/#/fleet/reach`);
    await tab.getByRole("button", { name: "sensor · south · plant (2) exchanges nothing with dublin" }).click();
    await tab.locator(".said .verdict", { hasText: "nothing passes" }).waitFor();
    await tab.goto(`${origin}/#/fleet/applications`);
    await tab.locator(".card").first().waitFor();
    assert.ok(!(await tab.getByRole("button", { name: "Turn down" }).isVisible()), "who may look alone turns nobody down");
    await tab.goto(`${origin}/#/fleet/log`);
    await tab.locator(".log .wide", { hasText: HOSTILE }).waitFor();
    assert.equal(await tab.locator("main img").count(), 0);
    assert.deepEqual(faults, []);
    await close();
    await own.end();
});
