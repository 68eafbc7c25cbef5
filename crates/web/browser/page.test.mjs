// The page in a real browser, about daemons that are not there (examples/stage.rs).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { launch, look, stage, until } from "./browser.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const VIEWS = ["", "peers", "peer/mt6d0/berlin", "peer/mt6d0/bern", "gateway", "firewall", "scripts", "script/scripts-4026531840/1", "events"];
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

for (const width of [390, 1024, 1600]) {
    for (const theme of ["light", "dark"]) {
        test(`axe finds nothing, and nothing is cut off, at ${width} px in the ${theme}`, async () => {
            const { tab, faults, origin, close } = await look(browser, scene.url, { width, theme });
            for (const view of VIEWS) {
                await tab.goto(`${origin}/#/${view}`);
                await tab.locator("main h1").first().waitFor();
                await until("a row or a sentence", () => tab.locator("main .body .row:visible, main .none:visible, main .listing li:visible").count());
                // Injected as the debugger does it: the page's own policy would refuse it.
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

test("whoever comes without the token is asked for it", async () => {
    const url = new URL(scene.url);
    const context = await browser.newContext();
    const tab = await context.newPage();
    await tab.goto(url.origin);
    await tab.evaluate(AXE);
    const { violations } = await tab.evaluate(() => globalThis.axe.run(document));
    assert.deepEqual(violations.map(({ id }) => id), []);
    await tab.getByLabel("Token").fill("wrong");
    await tab.getByRole("button").click();
    await tab.getByLabel("Token").fill(url.searchParams.get("token"));
    await tab.getByRole("button").click();
    await tab.locator('#live[data-is="live"]').waitFor();
    assert.equal(new URL(tab.url()).search, "", "the token is not left in the address");
    assert.equal(await tab.evaluate(() => document.cookie), "", "no script reads the cookie");
    await context.close();
});

test("all of it works by keys", async () => {
    const { tab, faults, close } = await look(browser, scene.url);
    await tab.keyboard.press("2");
    await tab.locator("h1", { hasText: "Peers" }).waitFor();
    await tab.keyboard.press("/");
    await tab.keyboard.type("rig");
    await until("the filter", async () => (await tab.locator(".peers .body .row").count()) < 20);
    assert.deepEqual(await tab.locator(".peers .body .name").allTextContents(), ["riga"]);
    await tab.keyboard.press("Escape");
    await tab.keyboard.press("j");
    await tab.keyboard.press("Enter");
    await tab.locator("h1", { hasText: "riga" }).waitFor();
    await tab.keyboard.press("Escape");
    await tab.locator("h1", { hasText: "Peers" }).waitFor();
    const before = await tab.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    await tab.keyboard.press("t");
    assert.notEqual(await tab.evaluate(() => getComputedStyle(document.documentElement).backgroundColor), before);
    await tab.keyboard.press("?");
    assert.ok(await tab.locator("#keys").isVisible());
    await tab.keyboard.press("Escape");
    assert.ok(!(await tab.locator("#keys").isVisible()));
    assert.deepEqual(faults, []);
    await close();
});

test("a peer that falls silent is the first thing that is said, and no longer when it is heard", async () => {
    const { tab, close } = await look(browser, scene.url);
    const said = () => tab.locator(".problems").textContent();
    scene.say("silent wien");
    await until("wien is named", async () => (await said()).includes("wien"));
    assert.equal(await tab.locator(".verdict .dot").getAttribute("data-tone"), "bad");
    await tab.locator(".events .message", { hasText: "wien: nothing comes" }).first().waitFor();
    scene.say("well wien");
    await until("wien is no longer named", async () => !(await said()).includes("wien"));
    await close();
});

test("what exposes a tunnel is said as long as it does", async () => {
    const { tab, close } = await look(browser, scene.url);
    const said = () => tab.locator(".problems").textContent();
    scene.say("exposed yes");
    await until("both are named", async () => /keys are written to a file.*keep its prefix dark are not there/s.test(await said()));
    scene.say("exposed no");
    await until("they are no longer named", async () => !/keys are written|prefix dark/.test(await said()));
    await close();
});

test("history, lanes and the countdown of a peer are drawn and move", async () => {
    const { tab, faults, close } = await look(browser, scene.url, { path: "peer/mt6d0/berlin" });
    await until("four histories", async () => (await tab.locator(".uplot canvas").count()) === 4);
    const pixels = async () => (await tab.locator("canvas.lanes").screenshot()).toString("base64");
    const [first, words] = [await pixels(), await tab.locator(".figure", { hasText: "Next move" }).textContent()];
    await until("the picture moves", async () => (await pixels()) !== first);
    await until("the countdown moves", async () => (await tab.locator(".figure", { hasText: "Next move" }).textContent()) !== words);
    await tab.getByRole("button", { name: "31 days" }).click();
    await until("the month", async () => (await tab.getByRole("button", { name: "31 days" }).getAttribute("aria-pressed")) === "true");
    assert.deepEqual(faults, []);
    await close();
});

test("a daemon that ends is named, nothing that it said passes for true, and is well when it is back", async () => {
    const { tab, origin, close } = await look(browser, scene.url);
    const view = async (path) => {
        await tab.goto(`${origin}/#/${path}`);
        await tab.locator("main h1").first().waitFor();
    };
    const figures = () => tab.locator(".figure dd:not(.note)").allTextContents();
    scene.say("end mt6d0");
    scene.say("end gateway-4026531840");
    await tab.locator(".problems li", { hasText: "mt6d0 does not answer" }).waitFor();
    await tab.locator(".problems li", { hasText: "gateway-4026531840 does not answer" }).waitFor();
    assert.deepEqual([...new Set(await tab.locator(".peers .body .state").allTextContents())], ["not known"]);
    assert.equal(await tab.locator(".problems li", { hasText: "nothing comes" }).count(), 0, "what is wrong with a peer is not known either");
    assert.deepEqual((await figures()).slice(0, 3), ["–", "–", "–"], "in, out, round trip");
    await view("peers");
    assert.deepEqual([...new Set(await tab.locator(".peers .body .rx").allTextContents())], ["–"]);
    await view("peer/mt6d0/berlin");
    await until("nothing is told as of now", async () => (await figures()).every((one) => one === "–"));
    await tab.locator(".is", { hasText: "when mt6d0 last answered" }).waitFor();
    await view("gateway");
    await until("uplinks are not known", async () => (await tab.locator(".uplinks .body .state").allTextContents()).every((one) => one === "not known"));
    scene.say("begin mt6d0");
    scene.say("begin gateway-4026531840");
    await view("");
    await until("they answer", async () => !/mt6d0|gateway-/.test(await tab.locator(".problems").textContent()));
    await close();
});

test("a page whose server ends says so, and comes back by itself", async () => {
    const own = await stage(3);
    const { tab, close } = await look(browser, own.url);
    await own.stop();
    await tab.locator('#live[data-is="lost"]').waitFor();
    const again = await stage(3, { folder: own.folder, listen: new URL(own.url).host });
    await tab.locator('#live[data-is="live"]').waitFor();
    await close();
    await again.stop();
    await own.end();
});

test("what a gateway gives hosts, and at which rates its uplinks are shaped, is shown", async () => {
    const { tab, faults, close } = await look(browser, scene.url, { path: "gateway" });
    const rows = async (table) => (await tab.locator(`.${table} .body .row`).all()).length;
    const row = (table, ...words) => words.reduce((found, word) => found.filter({ hasText: word }), tab.locator(`.${table} .body .row`));
    await row("leased", "nas.home.internal", "2001:db8:40:1::5", "fixed").waitFor();
    await row("leased", "laptop.home.internal", "192.168.1.130", "02:00:5e:00:53:01").waitFor();
    assert.equal(await rows("leased"), 5);
    await row("delegated", "2001:db8:40:10::/60", "fe80::5eff:fe00:5309", "1 h 30 min").waitFor();
    await row("opened", "192.168.1.187:51413", "203.0.113.7:40112", "198.51.100.0/24 port 443", "PCP").waitFor();
    await row("opened", "[2001:db8:40:1::22]:22000", "everybody").waitFor();
    assert.equal(await rows("opened"), 3);
    await row("bandwidth", "fibre, in", "shaped", "250 Mbit/s").waitFor();
    await row("bandwidth", "fibre, out", "40.0 Mbit/s").waitFor();
    await row("bandwidth", "lte, in", "10.0 Mbit/s to 150 Mbit/s").waitFor();
    assert.equal(await rows("bandwidth"), 3, "a direction without a bandwidth is not there");
    await tab.locator(".note", { hasText: "lte: the rates follow 2001:db8:77::53, which answers in 38.0 ms, usually in 31.4 ms" }).waitFor();
    const now = () => row("bandwidth", "lte, in").locator(".number").first().textContent();
    const before = await now();
    await until("the rate of now", async () => (await now()) !== before);
    scene.say("unshaped yes");
    await row("bandwidth", "fibre, out", "not shaped", "the kernel has no CAKE").waitFor();
    await tab.locator(".problems li", { hasText: "uplink fibre: what is sent is not shaped" }).waitFor();
    scene.say("unshaped no");
    await until("it is shaped again", async () => (await row("bandwidth", "not shaped").count()) === 0);
    assert.deepEqual(faults, []);
    await close();
});

test("a packet is explained, and a script is shown with the line that fails", async () => {
    const { tab, faults, close } = await look(browser, scene.url, { path: "firewall" });
    await tab.getByLabel(/What happens to this packet/).fill("tcp");
    await tab.getByRole("button", { name: "Explain" }).click();
    await tab.locator(".said .fault", { hasText: "`from` is missing" }).waitFor();
    await tab.getByLabel(/What happens to this packet/).fill("tcp from 2a00:1450::1 to gateway port 22 in wan");
    await tab.keyboard.press("Enter");
    await tab.locator(".said .verdict", { hasText: "drop, from wan to gateway" }).waitFor();
    await tab.keyboard.press("Escape");
    await tab.keyboard.press("5");
    await tab.locator(".scripts .name a").click();
    await tab.locator(".listing [data-failed]", { hasText: "3 errors" }).waitFor();
    assert.equal(await tab.locator(".listing [data-failed]").count(), 1);
    assert.deepEqual(faults, []);
    await close();
});

test("a name that is markup is shown as it is, and does nothing", async () => {
    const own = await stage(4, { environment: { STAGE_HOSTILE: HOSTILE } });
    const { tab, faults, close } = await look(browser, own.url, { path: "peers" });
    await tab.locator(".peers .name", { hasText: HOSTILE }).click();
    await tab.locator("h1", { hasText: HOSTILE }).waitFor();
    for (const view of ["", "events"]) {
        await tab.goto(`${new URL(own.url).origin}/#/${view}`);
        await tab.locator(".events .body .row").first().waitFor();
    }
    await tab.goto(`${new URL(own.url).origin}/#/peers`);
    await tab.locator(".peers .name", { hasText: "__proto__" }).waitFor();
    assert.equal(await tab.locator("main img").count(), 0);
    assert.deepEqual(faults, []);
    await close();
    await own.end();
});

// Frames in a second while it scrolls from end to end; and what the page's thread computes for one.
async function scroll(tab) {
    const debug = await tab.context().newCDPSession(tab);
    await debug.send("Performance.enable", { timeDomain: "threadTicks" });
    const spent = async () => {
        const { metrics } = await debug.send("Performance.getMetrics");
        return metrics.find(({ name }) => name === "TaskDuration").value;
    };
    const before = await spent();
    const { frames, seconds } = await tab.evaluate(
        () =>
            new Promise((resolve) => {
                const begun = performance.now();
                let [count, down] = [0, 1];
                const step = () => {
                    count += 1;
                    if (scrollY + innerHeight >= document.documentElement.scrollHeight - 2) down = -1;
                    else if (scrollY === 0) down = 1;
                    scrollBy(0, 60 * down);
                    const passed = performance.now() - begun;
                    if (passed < 6000) requestAnimationFrame(step);
                    else resolve({ frames: count, seconds: passed / 1000 });
                };
                requestAnimationFrame(step);
            }),
    );
    return { rate: frames / seconds, ms: (1000 * (await spent() - before)) / frames };
}

test("500 peers scroll as smoothly as an empty page", async (t) => {
    const own = await stage(500);
    const { tab, close } = await look(browser, own.url, { path: "peers" });
    await tab.locator('.peers [role=table][aria-rowcount="501"]').waitFor();
    const peers = await scroll(tab);
    await tab.evaluate(() => {
        document.body.replaceChildren();
        document.body.style.height = "17000px";
    });
    const empty = await scroll(tab);
    t.diagnostic(`500 peers: ${peers.rate.toFixed(1)} frames/s, ${peers.ms.toFixed(1)} ms of the page's thread each; empty: ${empty.rate.toFixed(1)} frames/s`);
    // The browser makes a frame for each refresh of the screen, 60 times a second: what a frame takes must fit.
    assert.ok(peers.ms < 1000 / 60, `${peers.ms} ms of the page's thread for a frame`);
    assert.ok(peers.rate > 0.9 * empty.rate, `${peers.rate} frames in a second, and ${empty.rate} of an empty page`);
    await close();
    await own.end();
});
