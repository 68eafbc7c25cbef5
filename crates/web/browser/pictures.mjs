// The pictures of docs/web.md:  node pictures.mjs FOLDER

import { join } from "node:path";
import { launch, look, stage, until } from "./browser.mjs";

const PICTURES = [
    { name: "web-overview.png", theme: "light", width: 1280, height: 1120 },
    { name: "web-peer.png", theme: "dark", width: 1280, height: 1120, path: "peer/mt6d0/berlin" },
    { name: "web-phone.png", theme: "light", width: 390, height: 844, path: "peers", scale: 2 },
];

const folder = process.argv[2];
if (!folder) throw new Error("usage: node pictures.mjs FOLDER");
const browser = await launch();
const scene = await stage();
// Until lanes have come and gone, and rates are known: daemons are asked once a second while somebody looks.
await look(browser, scene.url);
await new Promise((resolve) => setTimeout(resolve, 130_000));
for (const { name, ...how } of PICTURES) {
    const { tab, close } = await look(browser, scene.url, how);
    if (how.path !== "peers") await until("a history", () => tab.locator(".uplot canvas").count());
    // Until the moves of some seconds are known.
    await tab.waitForTimeout(8000);
    await tab.screenshot({ path: join(folder, name) });
    await close();
}
await browser.close();
await scene.end();
