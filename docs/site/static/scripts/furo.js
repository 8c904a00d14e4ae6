// The script of the site: the button for light and dark colours, and the current heading in the list of headings.
// It stands in for the script of the theme: Debian's package furo has that as a module that browsers cannot load.
(function () {
  "use strict";

  // Without localStorage, for example in a private window, a choice holds for one page.
  const stored = {
    get() { try { return localStorage.getItem("theme"); } catch (error) { return null; } },
    set(name) { try { localStorage.setItem("theme", name); } catch (error) { /* holds for this page */ } },
  };

  // auto -> the colours that the system does not prefer -> the other ones -> auto
  function nextTheme() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    const now = order.indexOf(document.body.dataset.theme);
    document.body.dataset.theme = order[(now + 1) % order.length];
    stored.set(document.body.dataset.theme);
  }

  // Marks the last heading above the middle of the window.
  function markHeading(links) {
    let current = null;
    for (const [heading, item] of links) {
      item.classList.remove("scroll-current");
      if (heading.getBoundingClientRect().top < window.innerHeight / 3) current = item;
    }
    if (current) current.classList.add("scroll-current");
  }

  document.documentElement.classList.remove("no-js");
  document.body.dataset.theme = stored.get() || "auto";
  for (const button of document.getElementsByClassName("theme-toggle")) button.addEventListener("click", nextTheme);
  const links = [];
  for (const link of document.querySelectorAll(".toc-tree a")) {
    const heading = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (heading) links.push([heading, link.parentElement]);
  }
  markHeading(links);
  document.addEventListener("scroll", () => window.requestAnimationFrame(() => markHeading(links)), {passive: true});
})();
