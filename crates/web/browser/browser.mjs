// A browser and a page to look at, for the tests and for the pictures.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

export const STAGE = process.env.SIDESTEP_STAGE ?? new URL("../../../target/debug/examples/stage", import.meta.url).pathname;
const PATIENCE_MS = 60_000;

// Root, as which the tests run, needs --no-sandbox; what is shown is ours.
export const launch = () =>
    chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--force-color-profile=srgb"] });

// Starts a program that prints what to open; says it when that is there.
export async function start(program, args, environment = {}) {
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, ...environment } });
    const ended = new Promise((resolve) => child.once("exit", resolve));
    const first = new Promise((resolve) => createInterface(child.stdout).once("line", resolve));
    const line = await Promise.race([first, ended.then((code) => Promise.reject(new Error(`${program} ended: ${code}`)))]);
    return {
        pid: child.pid,
        url: line.match(/https?:[^\s;]+/)[0],
        say: (words) => child.stdin.write(`${words}\n`),
        end: () => (child.kill("SIGKILL"), ended),
    };
}

// Daemons that are not there, and their page.
export async function stage(peers = 20, { folder, listen = "127.0.0.1:0", environment } = {}) {
    const own = folder ?? mkdtempSync(join(tmpdir(), "sidestep-page-"));
    const page = await start(STAGE, [own, String(peers), listen], environment);
    const end = async () => {
        await page.end();
        if (!folder) rmSync(own, { recursive: true, force: true });
    };
    return { ...page, folder: own, end, stop: page.end };
}

// A tab that is let in, and what went wrong in it.
export async function look(browser, url, { width = 1600, height = 1000, theme = "light", scale = 1, path = "" } = {}) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, deviceScaleFactor: scale, locale: "en-GB", timezoneId: "UTC" });
    const tab = await context.newPage();
    tab.setDefaultTimeout(PATIENCE_MS);
    const faults = [];
    const origin = new URL(url).origin;
    tab.on("pageerror", (error) => faults.push(`error: ${error.message}`));
    tab.on("console", (message) => ["error", "warning"].includes(message.type()) && faults.push(`console: ${message.text()}`));
    tab.on("request", (request) => new URL(request.url()).origin !== origin && !request.url().startsWith("data:") && faults.push(`fetches ${request.url()}`));
    await tab.goto(url);
    if (path) await tab.goto(`${origin}/#/${path}`);
    await tab.locator('#live[data-is="live"]').waitFor();
    return { tab, faults, origin, close: () => context.close() };
}

// Waits until something is so, for as long as it takes within reason.
export async function until(what, is) {
    const end = Date.now() + PATIENCE_MS;
    for (;;) {
        const value = await is();
        if (value) return value;
        if (Date.now() > end) throw new Error(`it does not come: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
}
