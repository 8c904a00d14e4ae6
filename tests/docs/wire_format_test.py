#!/usr/bin/env python3
"""docs/wire_format.md lists all messages with their numbers, and the version and the sizes in use."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


class WireFormat(unittest.TestCase):
    def setUp(self):
        self.said = read("docs/wire_format.md")
        self.header = read("src/connector/handshake.h")

    def test_every_message_and_no_other(self):
        body = re.search(r"enum class MessageType[^{]*\{(.*?)\};", self.header, re.S).group(1)
        types = [(number, name.upper()) for name, number in re.findall(r"k(\w+) = (\d+),", body)]
        self.assertGreater(len(types), 5)
        self.assertEqual(re.findall(r"^\| (\d+) \| ([A-Z]+) \|", self.said, re.M), types)

    def test_the_version_is_the_one_in_use(self):
        version = re.search(r"kHandshakeVersion = (\d+);", self.header).group(1)
        self.assertEqual(re.search(r"`version` is (\d+)", self.said).group(1), version)

    def test_the_slots_of_rdma_cm_have_the_documented_size(self):
        stream = read("src/connector/cm/cm_stream.h")
        segment = int(re.search(r"kSegmentBytes = (\d+);", stream).group(1))
        head = int(re.search(r"kHeaderBytes = (\d+);", read("src/connector/cm/cm_segment.h")).group(1))
        self.assertIn(f"`slot bytes` ({segment + head})", self.said)
        self.assertIn(f"length bytes, 0..{segment}", self.said)

    def test_every_frame_of_a_copy_and_no_other(self):
        body = re.search(r"enum class FrameKind[^{]*\{(.*?)\};", read("tools/rdma_copy/frame_parts.h"), re.S).group(1)
        kinds = [(number, re.sub(r"(?<!^)([A-Z])", r" \1", name).lower()) for name, number in re.findall(r"k(\w+) = (\d+),", body)]
        self.assertEqual(kinds[0], ("0", "pad"))
        self.assertEqual(re.findall(r"^\| (\d+) \| ([a-z ]+) \| (?:client|source|sink|both) \|", self.said, re.M), kinds[1:])

    def test_bounds_of_descriptions_are_those_in_use(self):
        config = read("include/rdmacomm/config.h")
        description = read("src/endpoint/endpoint_description.h")
        for text, pattern, source in (("u16 channels (1..{})", r"kMaxChannels = (\d+);", config),
                                      ("u16 regions (0..{})", r"kMaxRegions = (\d+);", config),
                                      ("u8 GIDs (0..{})", r"kMaxGids = (\d+);", description)):
            self.assertIn(text.format(re.search(pattern, source).group(1)), self.said)


if __name__ == "__main__":
    unittest.main()
