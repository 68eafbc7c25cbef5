// The page about twenty peers of a lab on this machine's kernel, through faults. As root.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { launch, look, start, until } from "./browser.mjs";

const debug = new URL("../../../target/debug/", import.meta.url).pathname;
const PROGRAM = process.env.SIDESTEP_BIN ?? join(debug, "sidestep");
const LAB = process.env.SIDESTEP_LAB_BIN ?? join(debug, "sidestep-lab");
const PREFIX = "page";
const HUB = `${PREFIX}-hub`;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const inHub = (...words) => execFileSync("ip", ["netns", "exec", HUB, ...words], { encoding: "utf8" });

let lab;
let folder;
let page;
let browser;
let eye;

before(async () => {
    lab = spawn(LAB, ["many", "--prefix", PREFIX, "--peers", "20", "--rotation", "2s", "--echoes", "5", "--hold"], { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, SIDESTEP_BIN: PROGRAM } });
    const up = new Promise((resolve) => createInterface(lab.stdout).once("line", resolve));
    const ended = new Promise((_, reject) => lab.once("exit", (code) => reject(new Error(`the lab ended: ${code}`))));
    assert.match(await Promise.race([up, ended]), /^20 sessions are up/);
    // The page is to be about the hub alone, not about the daemons of its peers, which are on this machine, too.
    folder = mkdtempSync(join(tmpdir(), "sidestep-page-"));
    mkdirSync(join(folder, "run"));
    symlinkSync(`/run/sidestep/${HUB}.sock`, join(folder, "run", `${HUB}.sock`));
    page = await start(PROGRAM, ["web", "--listen", "127.0.0.1:0", "--sockets", join(folder, "run"), "--state-dir", join(folder, "state")]);
    page.url += `login?token=${readFileSync(join(folder, "state/token"), "utf8").trim()}`;
    browser = await launch();
    eye = await look(browser, page.url);
});

after(async () => {
    await browser?.close();
    await page?.end();
    if (lab) {
        const gone = new Promise((resolve) => lab.once("exit", resolve));
        lab.kill("SIGTERM");
        await gone;
    }
    if (folder) rmSync(folder, { recursive: true, force: true });
});

const sentence = () => eye.tab.locator(".verdict").textContent();
const problems = () => eye.tab.locator(".problems").textContent();
const open = (path) => eye.tab.goto(`${eye.origin}/#/${path}`);

test("it has no privileges", () => {
    const status = readFileSync(`/proc/${page.pid}/status`, "utf8");
    assert.match(status, /^CapPrm:\t0+$/m);
    assert.match(status, /^CapEff:\t0+$/m);
    assert.match(status, /^NoNewPrivs:\t1$/m);
    assert.match(status, /^Seccomp:\t2$/m);
});

test("all twenty are reached, carry, and move", async () => {
    await until("all are reached", async () => (await sentence()) === "All 20 peers are reached");
    await until("they carry", async () => /[1-9]/.test(await eye.tab.locator(".figure", { hasText: "In" }).first().textContent()));
    await until("they move", async () => /Moves in a minute[1-9]/.test(await eye.tab.locator(".figure", { hasText: "Moves in a minute" }).textContent()));
    await open("peers");
    await until("twenty rows", async () => (await eye.tab.locator(".peers .body .row").count()) === 20);
    await open(`peer/${HUB}/p7`);
    await until("lanes come and go", async () => Number((await eye.tab.locator("section .note").first().textContent()).match(/in use, (\d+)/)?.[1] ?? 0) > 3);
    await eye.tab.evaluate(AXE);
    const { violations } = await eye.tab.evaluate(() => globalThis.axe.run(document));
    assert.deepEqual(violations.map(({ id }) => id), []);
    await open("");
});

test("one whose datagrams are dropped on the way is named, and no longer once they come", async () => {
    inHub("nft", "add table ip6 cut");
    inHub("nft", "add chain ip6 cut in { type filter hook prerouting priority -500 ; }");
    inHub("nft", "add rule ip6 cut in ip6 saddr 2001:db8:b1:5::/64 drop");
    await until("p5 is named", async () => /p5: /.test(await problems()));
    assert.equal(await sentence(), "19 of 20 peers are reached");
    await open(`peer/${HUB}/p5`);
    await eye.tab.locator(".fault:visible").waitFor();
    await eye.tab.locator(".events .message", { hasText: "p5" }).first().waitFor();
    inHub("nft", "delete table ip6 cut");
    await eye.tab.locator(".fault").waitFor({ state: "hidden" });
    await open("");
    await until("all are reached", async () => (await sentence()) === "All 20 peers are reached");
});

test("a link that is cut silences all, and its return is seen", async () => {
    inHub("ip", "link", "set", "g0", "down");
    await until("none is reached", async () => (await sentence()) === "0 of 20 peers are reached");
    assert.match(await problems(), /12 more peers cannot be reached/);
    inHub("ip", "link", "set", "g0", "up");
    // What the link's end took along.
    inHub("ip", "-6", "route", "replace", "2001:db8:b1::/58", "via", "2001:db8:ff::2");
    await until("all are reached", async () => (await sentence()) === "All 20 peers are reached");
});

test("a daemon that is killed is told at once, and what it was is shown as the past", async () => {
    const pid = execFileSync("pgrep", ["-f", `up /run/sidestep-lab/${PREFIX}/hub.toml`], { encoding: "utf8" }).split("\n")[0];
    process.kill(Number(pid), "SIGKILL");
    await eye.tab.locator(".problems li", { hasText: `${HUB} does not answer` }).waitFor();
    assert.equal(await sentence(), "0 of 20 peers are reached");
    const again = spawn("ip", ["netns", "exec", HUB, PROGRAM, "up", `/run/sidestep-lab/${PREFIX}/hub.toml`, "--state-dir", `/run/sidestep-lab/${PREFIX}/state`], { stdio: "ignore" });
    await until("all are reached", async () => (await sentence()) === "All 20 peers are reached");
    assert.deepEqual(eye.faults, []);
    again.kill("SIGTERM");
    await new Promise((resolve) => again.once("exit", resolve));
});
