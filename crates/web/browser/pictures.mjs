// The pictures of docs/web.md:  node pictures.mjs FOLDER [NAME…]

import { join } from "node:path";
import { launch, look, stage, until } from "./browser.mjs";

const PICTURES = [
    { name: "web-overview.png", theme: "light", width: 1280, height: 1120 },
    { name: "web-peer.png", theme: "dark", width: 1280, height: 1120, path: "peer/mt6d0/berlin" },
    { name: "web-phone.png", theme: "light", width: 390, height: 844, path: "peers", scale: 2 },
    { name: "web-fleet.png", theme: "light", width: 1280, height: 1120, path: "fleet" },
    { name: "web-fleet-reach.png", theme: "dark", width: 1280, height: 900, path: "fleet/reach", then: explain },
    { name: "web-fleet-change.png", theme: "light", width: 1280, height: 1240, path: "fleet/rules", then: change },
    { name: "web-fleet-phone.png", theme: "dark", width: 390, height: 844, path: "fleet", scale: 2 },
];

// What somebody does before the picture is taken.
async function explain(tab) {
    await tab.getByLabel("From").fill("oslo");
    await tab.getByLabel("To", { exact: true }).fill("fd00:e::1");
    await tab.keyboard.press("Enter");
    await tab.locator(".said .verdict").waitFor();
}
async function change(tab) {
    const text = tab.locator("#rules");
    await until("the rules", async () => (await text.inputValue()).includes("office"));
    await text.fill((await text.inputValue()).replace('"office"]', '"office", "plant"]'));
    await tab.getByRole("button", { name: "What would be different?" }).click();
    await tab.locator(".differs .row").first().waitFor();
}

const folder = process.argv[2];
const chosen = process.argv.slice(3);
if (!folder) throw new Error("usage: node pictures.mjs FOLDER [NAME…]");
const browser = await launch();
const scene = await stage();
const fleet = (path) => path?.startsWith("fleet");
const pictures = PICTURES.filter(({ name }) => chosen.length === 0 || chosen.includes(name));
// Until lanes have come and gone, and rates are known: daemons are asked once a second while somebody looks.
await look(browser, scene.url);
if (pictures.some(({ path }) => !fleet(path))) await new Promise((resolve) => setTimeout(resolve, 130_000));
for (const { name, then, ...how } of pictures) {
    const { tab, close } = await look(browser, scene.url, how);
    if (!fleet(how.path) && how.path !== "peers") await until("a history", () => tab.locator(".uplot canvas").count());
    if (how.path === "fleet") await tab.locator(".map circle").first().waitFor();
    await then?.(tab);
    // Until the moves of some seconds are known.
    await tab.waitForTimeout(fleet(how.path) ? 1000 : 8000);
    await tab.screenshot({ path: join(folder, name) });
    await close();
}
await browser.close();
await scene.end();
