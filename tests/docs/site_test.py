#!/usr/bin/env python3
"""Looks at the site that scripts/docs.sh has built, in headless Chromium.

usage: site_test.py SITE XML SCREENSHOTS

SITE         the folder with index.html
XML          the folder with Doxygen's output
SCREENSHOTS  a folder for pictures of some pages, in light and dark colours, 400 and 1280 pixels wide
"""

import collections
import functools
import html.parser
import http.server
import pathlib
import re
import sys
import tempfile
import threading
import unittest
import urllib.parse
import xml.etree.ElementTree as ElementTree

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WIDTHS = (400, 1280)
SCHEMES = ("light", "dark")
PICTURED = ("index.html", "docs/glossary.html", "docs/tutorial.html", "docs/architecture.html", "api/index.html", "api/channel.html", "api/errc.html")
LEAST_CONTRAST = 4.5  # of text: WCAG 2.1, level AA
# Returns the texts of a page that can hardly be read: their contrast to the background is below a limit.
FAINT_TEXTS = """
const limit = arguments[0], faint = new Set();
const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
const luminance = c => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
  const s = c[i] / 255;
  return sum + weight * (s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4); }, 0);
function background(element) {
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
  const canvas = matchMedia('(prefers-color-scheme: dark)').matches ? [0, 0, 0, 1] : [255, 255, 255, 1];
  return layers.reduceRight((below, top) => over(top, below), canvas);
}
for (const element of document.querySelectorAll('article *, .sidebar-drawer *')) {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  if (!own || !element.getClientRects().length || getComputedStyle(element).visibility === 'hidden') continue;
  if (element.matches('.headerlink, .visually-hidden')) continue;
  const below = background(element), text = over(rgba(getComputedStyle(element).color), below);
  const [a, b] = [luminance(text), luminance(below)].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < limit) faint.add(element.tagName + '.' + element.className + ' ' + contrast.toFixed(1) + ': ' + element.textContent.slice(0, 30));
}
return [...faint];
"""
# Returns the elements that are cut off at the right edge of the window. The theme hides what is beyond it, so the page itself is never
# wider. Elements in a box that scrolls are fine.
CUT_OFF = """
const scrolls = e => e && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
const cut = [];
const right = thing => Math.max(0, ...[...thing.getClientRects()].map(box => box.right));
for (const element of document.querySelectorAll('article *')) {
  const range = document.createRange();
  const ends = [right(element)];
  for (const node of element.childNodes) {
    if (node.nodeType !== 3) continue;
    range.selectNode(node);
    ends.push(right(range));
  }
  if (Math.max(...ends) > innerWidth + 1 && !scrolls(element) && !element.matches('.headerlink'))
    cut.push(element.tagName + ': ' + element.textContent.slice(0, 30));
}
return cut;
"""

Link = collections.namedtuple("Link", "page attribute target")


class Page(html.parser.HTMLParser):
    """The links of a page, and the ids that links may lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value)
            elif value and (name == "src" or name == "href" and tag != "use"):
                self.links.append(("loads" if name == "src" or tag == "link" else "leads to", value))


def wrong_links(site):
    """The links of all pages that lead nowhere, and files that a page loads from elsewhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    wrong = []
    for path, page in pages.items():
        for kind, link in page.links:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc:
                if kind == "loads" and address.scheme != "data":
                    wrong.append(Link(path.relative_to(site).as_posix(), kind, link))
                continue
            target = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
            anchor = urllib.parse.unquote(address.fragment)
            exists = target.is_file() and target.is_relative_to(site)
            if not exists or (anchor and target in pages and anchor not in pages[target].ids):
                wrong.append(Link(path.relative_to(site).as_posix(), kind, link))
    return wrong


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Browser:
    """Chromium, and a web server on the loopback interface for the site."""

    def __init__(self, site):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        options = webdriver.ChromeOptions()
        for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.binary_location = "/usr/bin/chromium"
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)

    def show(self, page, scheme, width):
        """Opens a page. Returns what the console says."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.resize(width, 1000)
        self.driver.get(f"http://127.0.0.1:{self.server.server_address[1]}/{page}")
        return [entry["message"] for entry in self.driver.get_log("browser") if "favicon.ico" not in entry["message"]]

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def end(self):
        self.driver.quit()
        self.server.shutdown()
        self.server.server_close()


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = pathlib.Path(SITE).resolve()
        if not (cls.site / "index.html").exists():
            raise FileNotFoundError(f"{SITE} has no site: run scripts/docs.sh")
        cls.pages = sorted(path.relative_to(cls.site).as_posix() for path in cls.site.rglob("*.html"))
        cls.browser = Browser(cls.site)
        cls.addClassCleanup(cls.browser.end)

    def test_has_all_documents_and_headers(self):
        for page in PICTURED + ("search.html", "genindex.html", "docs/adr/index.html"):
            self.assertIn(page, self.pages)
        self.assertGreater(len(self.pages), 80)

    def test_each_public_symbol_is_on_a_page(self):
        shown = set()
        for path in (self.site / "api").glob("*.html"):
            shown |= set(re.findall(r'class="sig-name descname"><span class="n"><span class="pre">([^<]+)<', path.read_text(encoding="utf-8")))
        expected = set()
        for path in pathlib.Path(XML).glob("*.xml"):
            for compound in ElementTree.parse(path).getroot().iter("compounddef"):
                if compound.get("kind") in ("class", "struct") and "<" not in compound.findtext("compoundname"):
                    expected.add(compound.findtext("compoundname").rpartition("::")[2])
                for member in compound.iter("memberdef"):
                    if member.get("prot") == "public" and member.get("kind") != "friend":
                        expected |= {each.findtext("name") for each in [member, *member.findall("enumvalue")]}
        expected = {name for name in expected if not name.startswith(("operator", "~", "@"))}
        self.assertGreater(len(expected), 400)
        self.assertEqual(sorted(expected - shown), [])

    def test_each_link_leads_to_something_that_exists(self):
        self.assertEqual(wrong_links(self.site), [], "correct the documents that these pages are made of, or docs/site/stage.py")

    def test_each_page_can_be_read(self):
        # Each width and each scheme once: the colours do not depend on the width.
        for page in self.pages:
            for scheme, width in zip(SCHEMES, WIDTHS):
                with self.subTest(page=page, scheme=scheme, width=width):
                    self.assertEqual(self.browser.show(page, scheme, width), [], "the console is not empty")
                    self.assertEqual(self.browser.script(CUT_OFF), [], "wider than the window")
                    self.assertEqual(self.browser.script(FAINT_TEXTS, LEAST_CONTRAST), [], "hardly to be read")

    def test_the_button_changes_the_colours(self):
        background = "return getComputedStyle(document.body).backgroundColor"
        self.browser.show("index.html", "dark", 1280)
        dark = self.browser.script(background)
        self.browser.script("document.querySelector('.theme-toggle-content .theme-toggle').click()")
        light = self.browser.script(background)
        self.browser.show("docs/faq.html", "dark", 1280)
        self.assertNotEqual(dark, light)
        self.assertEqual(self.browser.script(background), light, "the choice does not hold on the next page")
        self.browser.script("localStorage.clear()")

    def test_the_search_finds_documents_and_symbols(self):
        for words, expected in (("ulimit", "docs/troubleshooting.html"), ("post_fetch_add", "api/channel.html")):
            with self.subTest(words):
                self.assertEqual(self.browser.show(f"search.html?q={words}", "light", 1280), [])
                WebDriverWait(self.browser.driver, 60).until(
                    lambda driver: "finished" in driver.find_element(By.ID, "search-results").text)
                found = self.browser.driver.find_elements(By.CSS_SELECTOR, "#search-results li a")
                links = [link.get_attribute("href") for link in found]
                self.assertTrue(any(expected in link for link in links), links)

    def test_pictures(self):
        folder = pathlib.Path(SCREENSHOTS)
        folder.mkdir(parents=True, exist_ok=True)
        for page in PICTURED:
            for scheme in SCHEMES:
                for width in WIDTHS:
                    with self.subTest(page=page, scheme=scheme, width=width):
                        self.browser.show(page, scheme, width)
                        name = page.replace("/", "_").removesuffix(".html")
                        self.assertTrue(self.browser.driver.save_screenshot(str(folder / f"{name}.{scheme}.{width}.png")))


class Checks(unittest.TestCase):
    """The checks above find faults."""

    def test_wrong_links_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            site = pathlib.Path(folder).resolve()
            (site / "a.html").write_text('<a href="b.html#here">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="#gone">4</a>'
                                         '<script src="https://example.com/x.js"></script><a href="https://example.com">5</a>', encoding="utf-8")
            (site / "b.html").write_text('<p id="here"></p>', encoding="utf-8")
            self.assertEqual([link.target for link in wrong_links(site)],
                             ["b.html#gone", "c.html", "#gone", "https://example.com/x.js"])

    def test_errors_wide_pages_and_faint_texts_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.html").write_text(
                '<html style="overflow-x: hidden"><body style="background: white"><article><p style="color: #bbb">faint</p><p style="color: #222">clear</p>'
                '<p style="width: 900px">wide</p></article><script>no_such_function()</script>', encoding="utf-8")
            browser = Browser(folder)
            self.addCleanup(browser.end)
            console = browser.show("a.html", "light", 400)
            self.assertIn("no_such_function", " ".join(console))
            self.assertEqual([text.partition(": ")[2] for text in browser.script(CUT_OFF)], ["wide"])
            self.assertEqual([text.partition(": ")[2] for text in browser.script(FAINT_TEXTS, LEAST_CONTRAST)], ["faint"])


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if "--help" in sys.argv else 2)
    SITE, XML, SCREENSHOTS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
