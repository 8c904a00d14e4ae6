#!/usr/bin/env python3
"""docs/site: comments become commands of Doxygen, and links of the documents become links of the site."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs/site"))
import doxygen_filter  # noqa: E402  pylint: disable=wrong-import-position
import stage  # noqa: E402  pylint: disable=wrong-import-position


class Filter(unittest.TestCase):
    def converted(self, *lines):
        return [line for line in doxygen_filter.converted(list(lines)) if line]

    def test_parameters_and_sections(self):
        self.assertEqual(self.converted("Waits.", "", "a, b      two numbers;", "          not 0", "Returns   true", "Threads   any thread"),
                         ["Waits.", "@param a,b two numbers; not 0", "@par Returns", "true", "@par Threads", "any thread"])

    def test_errors_become_a_list(self):
        self.assertEqual(self.converted("Returns  kTimeout: too late; kWrongState: it is", "         closed; std::errc::bad_address: no"),
                         ["@par Returns", "- kTimeout: too late", "- kWrongState: it is closed", "- std::errc::bad_address: no"])

    def test_a_semicolon_in_a_sentence_begins_no_item(self):
        self.assertEqual(self.converted("Returns  the value; a copy"), ["@par Returns", "the value; a copy"])

    def test_aligned_items(self):
        self.assertEqual(self.converted("The modes:", "  kBusy  spins", "  kEpoll  sleeps"), ["The modes:", "- `kBusy`: spins", "- `kEpoll`: sleeps"])

    def test_each_label_of_the_headers_is_known(self):
        for header in sorted((ROOT / "include/rdmacomm").glob("*.h")):
            for line in header.read_text(encoding="utf-8").splitlines():
                comment = doxygen_filter.COMMENT.match(line)
                if comment and (label := re.match(r"([A-Z]\w*(?: \w+)?) {2,}\S", comment["text"])):
                    with self.subTest(header=header.name, label=label[1]):
                        self.assertRegex(comment["text"], doxygen_filter.SECTION)

    def test_code_is_left_alone(self):
        code = "class A {\n  int b = 1;  ///< Returns  no label here\n};\n"
        self.assertEqual(doxygen_filter.filtered(code).rstrip("\n"), code.rstrip("\n"))


class Stage(unittest.TestCase):
    def relinked(self, text, at="docs/faq.md"):
        found = set()
        return stage.relink(text, ROOT / at, found), {path.relative_to(ROOT).as_posix() for path in found}

    def test_documents_keep_their_links(self):
        self.assertEqual(self.relinked("[a](errors.md#ktimeout) [b](https://a.org/b.cc) [c](#d)"),
                         ("[a](errors.md#ktimeout) [b](https://a.org/b.cc) [c](#d)", set()))

    def test_the_readme_is_the_first_page(self):
        self.assertEqual(self.relinked("[a](../README.md#try-it)"), ("[a](../index.md#try-it)", set()))

    def test_headers_lead_to_the_reference(self):
        self.assertEqual(self.relinked("[a](../include/rdmacomm/channel.h) [b](../include/rdmacomm)"),
                         ("[a](../api/channel.md) [b](../api/index.md)", set()))

    def test_other_files_and_folders_get_pages(self):
        self.assertEqual(self.relinked("[a](../example/01_hello.cc) [b](../example/tutorial) [c](../example)"),
                         ("[a](../example/01_hello.cc.md) [b](../example/tutorial/index.md) [c](../example/README.md)",
                          {"example/01_hello.cc", "example/tutorial"}))

    def test_code_has_no_links(self):
        text = "```cpp\n[&](HcaConfig& hca)\n```\n\n    a[0](b.cc)\n\nand `a[0](b.cc)`.\n"
        self.assertEqual(self.relinked(text), (text, set()))

    def test_the_menu_has_each_section_of_the_index(self):
        groups, shown = stage.menu()
        for caption in ("Start", "Write my first program", "Handle errors and ends", "Decisions"):
            self.assertIn(f":caption: {caption}\n", groups)
        self.assertLessEqual({"docs/tutorial.md", "docs/faq.md", "api/index.md", "docs/adr/index.md", "CONTRIBUTING.md"}, shown)


if __name__ == "__main__":
    unittest.main()
