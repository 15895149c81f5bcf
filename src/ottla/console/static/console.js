// What the pages do in the browser: theme, keyboard, copying, charts, following, renewing. Everything else is plain HTML.
(function () {
  "use strict";

  const root = document.documentElement;

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function switchTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("ottla-theme", root.dataset.theme); } catch (error) { /* no storage */ }
    document.querySelectorAll("[data-chart]").forEach(drawChart);
  }

  document.addEventListener("click", async (event) => {
    const target = event.target;
    if (!(target instanceof Element)) return;
    if (target.closest("#theme")) switchTheme();
    const copy = target.closest("[data-copy]");
    if (copy) {
      const code = copy.closest(".copy-item").querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch (error) { // no permission: the text is marked, so that Ctrl-C copies it
        getSelection().selectAllChildren(code);
        copy.textContent = "Press Ctrl-C";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    }
    if (target.closest("[data-choose-all]")) {
      const boxes = [...document.querySelectorAll("input[name=record]")];
      const all = boxes.every((box) => box.checked);
      boxes.forEach((box) => { box.checked = !all; });
    }
    const follow = target.closest("[data-follow]");
    if (follow) toggleFollowing(follow);
    if (target.closest("[data-back]") && history.length > 1) { event.preventDefault(); history.back(); }
  });

  // Keyboard: single keys, unless somebody is typing.
  let goPressedAt = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (Date.now() - goPressedAt < 1200) {
      const link = document.querySelector('nav.side a[data-key="' + CSS.escape(event.key) + '"]');
      goPressedAt = 0;
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") goPressedAt = Date.now();
    if (event.key === "t") switchTheme();
    if (event.key === "/") {
      const field = document.querySelector('[data-focus-key="/"]');
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    }
  });

  // Fields that belong to one choice are shown with it.
  function showFields() {
    const start = document.querySelector("[data-start]");
    const place = document.querySelector("[data-place]");
    document.querySelectorAll("[data-for]").forEach((label) => {
      const wanted = label.dataset.for;
      label.hidden = wanted !== (start && start.value) && wanted !== (place && place.value);
    });
  }
  document.addEventListener("change", (event) => {
    if (event.target instanceof Element && event.target.matches("[data-start], [data-place]")) showFields();
  });

  // Charts.
  const plots = new Map();

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  function drawChart(figure) {
    const columns = JSON.parse(figure.dataset.chart);
    const labels = JSON.parse(figure.dataset.labels);
    const place = figure.querySelector(".plot");
    const enough = columns[0].length > 1;
    figure.querySelector(".chart-empty").hidden = enough;
    place.hidden = !enough;
    if (plots.has(figure)) { plots.get(figure).destroy(); plots.delete(figure); }
    if (!enough || typeof uPlot === "undefined") return;
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const lines = ["--accent", "--second"].map(colour);
    const number = (self, value) => value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 });
    const scales = { x: { time: true } };
    const clock = (time) => new Date(time * 1000).toISOString().slice(11, 19);
    const axes = [{ ...axis, space: 80, incrs: [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800], values: (self, splits) => splits.map(clock) }];
    const series = [{ label: "time (UTC)", value: (self, time) => time == null ? "–" : clock(time) }];
    labels.forEach((label, index) => {
      const scale = "y" + index;
      scales[scale] = { range: (self, low, high) => [0, Math.max(high || 0, 1) * 1.1] };
      axes.push({ ...axis, scale: scale, side: index ? 1 : 3, size: 64, grid: index ? { show: false } : axis.grid,
        values: (self, splits) => splits.map((split) => split.toLocaleString("en", { notation: "compact" })) });
      series.push({ label: label, scale: scale, stroke: lines[index], width: 2, value: number, spanGaps: true,
        fill: index ? undefined : colour("--accent-soft") });
    });
    plots.set(figure, new uPlot({ width: Math.max(place.clientWidth, 260), height: 220, padding: [12, 32, 0, 0], scales, axes, series,
      cursor: { y: false }, legend: { live: true } }, columns, place));
  }

  function listen(figure) {
    if (!figure.dataset.live) return;
    const events = new EventSource(figure.dataset.live);
    events.addEventListener("samples", (event) => {
      figure.dataset.chart = event.data;
      const columns = JSON.parse(event.data);
      if (plots.has(figure)) plots.get(figure).setData(columns); else drawChart(figure);
    });
    addEventListener("pagehide", () => events.close());
  }

  // Following a topic.
  const ROWS_MAX = 500;
  let following = null;

  function toggleFollowing(button) {
    if (following) {
      following.close();
      following = null;
      button.setAttribute("aria-pressed", "false");
      button.textContent = "Follow live";
      return;
    }
    const query = new URLSearchParams(new FormData(button.closest("form")));
    const body = document.getElementById("records");
    const status = document.getElementById("scanned");
    let arrived = 0;
    following = new EventSource(button.dataset.follow + "?" + query);
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Stop following";
    status.textContent = "Waiting for new records…";
    following.addEventListener("records", (event) => {
      body.querySelectorAll(".none").forEach((row) => row.remove());
      body.insertAdjacentHTML("afterbegin", JSON.parse(event.data)); // escaped by the server
      arrived += 1;
      while (body.children.length > ROWS_MAX) body.lastElementChild.remove();
      status.textContent = "Following: new records come in at the top.";
    });
    following.addEventListener("trouble", (event) => {
      toggleFollowing(button);
      status.textContent = JSON.parse(event.data);
    });
    following.addEventListener("away", (event) => { status.textContent = JSON.parse(event.data) + ". Trying again…"; });
    following.addEventListener("back", () => { status.textContent = "Waiting for new records…"; });
    following.addEventListener("error", () => {
      if (following === null) return;
      if (following.readyState !== EventSource.CLOSED) { status.textContent = "The console does not answer. Trying again…"; return; }
      toggleFollowing(button);
      status.textContent = "This cannot be followed. Press Show to see why.";
    });
    following.addEventListener("open", () => { status.textContent = "Waiting for new records…"; });
  }

  // Parts of a page that are renewed while it is open. Each has an id. One that somebody uses is left alone.
  const RENEW_MS = 3000;

  function isUsed(part) {
    return part.contains(document.activeElement) || part.querySelector("details[open]") !== null;
  }

  function isTyping() {
    return document.activeElement !== null && document.activeElement.closest("input, textarea, select") !== null;
  }

  async function renewParts() {
    const parts = [...document.querySelectorAll("[data-renew]")];
    if (!parts.length) return;
    setTimeout(renewParts, RENEW_MS);
    if (document.hidden) return;
    let page;
    try {
      const answer = await fetch(location.pathname + location.search);
      if (!answer.ok) return;
      page = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch (error) { return; } // the console is away: what is shown stays
    const fresh = new Map([...page.querySelectorAll("[data-renew]")].map((part) => [part.id, part]));
    if (fresh.size !== parts.length || parts.some((part) => !fresh.has(part.id))) {
      if (fresh.size && !isTyping()) location.reload(); // the page has other parts by now
      return;
    }
    parts.filter((part) => !isUsed(part) && part.innerHTML !== fresh.get(part.id).innerHTML)
      .forEach((part) => part.replaceChildren(...fresh.get(part.id).childNodes));
    const still = "[data-chart]:not([data-live])";
    const figures = page.querySelectorAll(still);
    document.querySelectorAll(still).forEach((figure, index) => {
      if (index < figures.length && figure.dataset.chart !== figures[index].dataset.chart) {
        figure.dataset.chart = figures[index].dataset.chart;
        drawChart(figure);
      }
    });
  }
  setTimeout(renewParts, RENEW_MS);

  document.querySelectorAll("[data-chart]").forEach((figure) => { drawChart(figure); listen(figure); });
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => document.querySelectorAll("[data-chart]").forEach(drawChart), 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.querySelectorAll("[data-chart]").forEach(drawChart));
  showFields();
})();
