// What the dashboard costs, for people to read: not a test, since a machine that is busy says something else each time.
//   BELFRY_BINARIES=FOLDER node dashboard/test/cost.mjs [NOTIFICATIONS]
// FOLDER has a released `belfry`. Prints the first paint of each page, the processor time that ten open pages take of the engine, and what
// one who follows the status takes of a broadcast at full speed, with and without by turns.
import { openPage, startBrowser } from "./browser.mjs";
import { Engine, endAll, operatorKey } from "./programs.mjs";
import { broadcast } from "./scene.mjs";

const notifications = Number(process.argv[2] ?? 10_000_000);
const rounds = 7;
const perRound = 2_000_000;

const median = (numbers) => numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)];
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The share of a core that the engine takes over so many milliseconds. */
async function share(engine, milliseconds) {
  const [at, processor] = [performance.now(), engine.processorSeconds()];
  await pause(milliseconds);
  return (engine.processorSeconds() - processor) / ((performance.now() - at) / 1000);
}

/** Follows the status until it is told to stop, as a page does, and answers how many events came. */
function follow(engine) {
  const stop = new AbortController();
  let events = 0;
  const followed = (async () => {
    const answer = await fetch(`${engine.url}/v1/status`, { headers: { authorization: `Bearer ${engine.key}`, accept: "text/event-stream" }, signal: stop.signal });
    for await (const piece of answer.body) events += Buffer.from(piece).includes("event: status") ? 1 : 0;
  })().catch(() => undefined);
  return async () => {
    stop.abort();
    await followed;
    return events;
  };
}

/** Sends a broadcast and waits for its end: seconds, and seconds of the engine's processor. */
async function send(engine, count) {
  const before = (await engine.get("/v1/status")).totals.delivered;
  const [at, processor] = [performance.now(), engine.processorSeconds()];
  await broadcast(engine, { channel: "news", content: { aps: { alert: "Good evening" } } }, count);
  await engine.until("/v1/status", ({ totals }) => totals.delivered === before + count);
  return { wall: (performance.now() - at) / 1000, processor: engine.processorSeconds() - processor };
}

const engine = await Engine.start(operatorKey(), `[channels.news]\nkind = "dry-run"`);
const browser = await startBrowser();
try {
  const filled = await send(engine, notifications);
  console.log(`${notifications} notifications in ${filled.wall.toFixed(1)} s`);

  const { context, page } = await openPage(browser, engine);
  for (const path of ["", "/notifications", "/broadcasts", "/lanes", "/trouble"]) {
    await page.goto(`${engine.url}/dashboard${path}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await pause(1_000);
    const paints = await page.evaluate(() => performance.getEntriesByType("paint").map(({ name, startTime }) => `${name} ${startTime.toFixed(0)} ms`));
    console.log(`/dashboard${path}: ${paints.join(", ")}`);
  }
  await context.close();

  // The search index goes on for some seconds behind what was handed in.
  while ((await share(engine, 5_000)) > 0.001);
  const [none, ten] = [[], []];
  for (let round = 0; round < 3; round += 1) {
    none.push(await share(engine, 15_000));
    const tabs = [];
    for (let tab = 0; tab < 10; tab += 1) tabs.push(await openPage(browser, engine));
    await pause(3_000);
    ten.push(await share(engine, 30_000));
    await Promise.all(tabs.map((tab) => tab.context.close()));
  }
  const percent = (shares) => shares.map((one) => (one * 100).toFixed(2)).join(", ");
  console.log(`of a core, in percent: ${percent(none)} alone, ${percent(ten)} with ten pages`);

  const [alone, followed] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    alone.push(await send(engine, perRound));
    const stop = follow(engine);
    followed.push(await send(engine, perRound));
    await stop();
  }
  for (const what of ["wall", "processor"]) {
    const [without, having] = [alone, followed].map((runs) => median(runs.map((run) => run[what])));
    console.log(`${perRound} at full speed, ${what}: ${without.toFixed(2)} s alone, ${having.toFixed(2)} s followed, ${(having / without).toFixed(3)}`);
  }
} finally {
  await browser.close();
  await endAll();
}
process.exit(0);
