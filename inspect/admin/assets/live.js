// Updates the page while it is open. Without this script everything works, and a reload shows what is new.
"use strict";
(() => {
  const main = document.getElementById("main"), live = document.getElementById("live");
  const skew = Date.now() - Number(document.body.dataset.now);
  const span = (ms) => {
    const s = Math.max(0, Math.floor(ms / 1000)), two = (n) => String(n).padStart(2, "0");
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + two(s % 60) + " s";
    if (s < 172800) return Math.floor(s / 3600) + " h " + two(Math.floor(s / 60) % 60) + " min";
    return Math.floor(s / 86400) + " d " + two(Math.floor(s / 3600) % 24) + " h";
  };
  const tick = () => {
    for (const t of document.querySelectorAll("time.age")) t.textContent = span(Date.now() - skew - Number(t.dataset.since));
  };
  setInterval(tick, 1000);

  // A page that asks a question, or where something is being typed or about to be clicked, does not change under the hand.
  const path = location.pathname;
  const still = path.endsWith("/drop") || path.endsWith("/cancel") || path.endsWith("/replay") || path.endsWith("/find") || path.endsWith("/doctor") || path.includes("/do/");
  const busy = () => main.querySelector("form:is(:hover, :focus-within), :is(.button, summary):hover, details[open]") !== null;
  let wanted = false, under = false;
  const update = async () => {
    wanted = true;
    if (under || still) return;
    under = true;
    while (wanted && !busy()) {
      wanted = false;
      try {
        const address = new URL(location.href);
        address.searchParams.delete("note");
        const answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
        if (!(answer.headers.get("Content-Type") || "").startsWith("text/html")) break;
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (busy()) { wanted = true; break; }
        main.replaceChildren(...document.importNode(fresh.getElementById("main"), true).childNodes);
        document.querySelector("footer").replaceWith(document.importNode(fresh.querySelector("footer"), true));
        document.title = fresh.title;
        tick();
      } catch { break; } // the server is gone: the next event, or the interval below, tries again
    }
    under = false;
  };
  setInterval(() => { if (wanted) update(); }, 500);

  let source, slow;
  const show = (on) => { live.hidden = false; live.textContent = on ? "live" : "offline"; live.classList.toggle("off", !on); };
  const open = () => {
    source = new EventSource(document.body.dataset.events);
    source.onopen = () => { show(true); clearInterval(slow); slow = undefined; update(); };
    source.addEventListener("changed", update);
    source.onerror = () => {
      show(false);
      slow ??= setInterval(() => { update(); if (source.readyState === EventSource.CLOSED) { source.close(); open(); } }, 5000);
    };
  };
  if (!still) {
    open();
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (e) => { if (e.persisted) { source.close(); open(); } });
  }
})();
