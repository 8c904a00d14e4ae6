#!/usr/bin/env python3
"""Each rule of scripts/check_layers.py finds its violations, and accepts correct code."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_layers.py"
GOOD_HEADER = '// x.h - a header.\n// Layer: {layer}.\n#pragma once\n{body}\n'


class CheckLayers(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.directory.name)
        self.write("CMakeLists.txt", "rdmacomm_layer(base)\nrdmacomm_layer(verbs DEPENDS base)\n"
                   "rdmacomm_layer(softdev DEPENDS base verbs)\n"
                   "rdmacomm_layer(device DEPENDS base verbs softdev)\n"
                   "rdmacomm_layer(memory DEPENDS base verbs device)\n")
        self.header("base", "result.h")
        self.write("src/base/result.cc", '#include "rdmacomm/result.h"\n#include <cstdio>\nint x = errno;\n')

    def tearDown(self):
        self.directory.cleanup()

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def header(self, layer, name, body=""):
        """Writes a public header."""
        self.write(f"include/rdmacomm/{name}", GOOD_HEADER.format(layer=layer, body=body))

    def private_header(self, layer, name, body=""):
        self.write(f"src/{layer}/{name}", f"#pragma once\n{body}\n")

    def run_tool(self):
        ran = subprocess.run([sys.executable, str(TOOL), str(self.root)], capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout

    def assert_clean(self):
        status, out = self.run_tool()
        self.assertEqual((status, "no violation" in out), (0, True), out)

    def assert_caught(self, *parts):
        status, out = self.run_tool()
        self.assertEqual(status, 1, out)
        self.assertEqual(len(out.splitlines()), 1, out)
        for part in parts:
            self.assertIn(part, out)

    def test_a_clean_tree_passes(self):
        self.write("src/verbs/a.cc", '#include "rdmacomm/result.h"\n// printf("x") errno soft0\n'
                   'auto s = std::snprintf(b, 3, "printf(");\n')
        self.assert_clean()

    def test_upward_include(self):
        self.write("src/base/bad.cc", '#include "verbs/api.h"\n')
        self.assert_caught("src/base/bad.cc:1", "layer base includes layer verbs")

    def test_upward_include_between_rooms(self):
        self.write("src/softdev/host/bad.cc", '#include "softdev/shared/layout.h"\n#include "softdev/tcp/tcp_wire.h"\n')
        self.assert_caught("src/softdev/host/bad.cc:2", "room softdev/host includes room softdev/tcp; allowed: softdev/common, softdev/shared")

    def test_rooms_beside_each_other_do_not_include_each_other(self):
        self.write("src/softdev/memory/bad.cc", '#include "softdev/host/gid_table.h"\n')
        self.assert_caught("room softdev/memory includes room softdev/host")

    def test_source_files_obey_between_rooms(self):
        self.write("src/softdev/context/good.cc", '#include "softdev/queues/soft_qp.h"\n')
        self.assert_clean()
        self.write("src/softdev/queues/bad.cc", '#include "softdev/context/soft_context.h"\n')
        self.assert_caught("src/softdev/queues/bad.cc:1", "room softdev/queues includes room softdev/context")

    def test_headers_obey_between_rooms(self):
        self.write("src/softdev/tcp/bad.h", '#pragma once\n#include "softdev/queues/soft_qp.h"\n')
        self.assert_caught("src/softdev/tcp/bad.h:2", "room softdev/tcp includes room softdev/queues")

    def test_files_in_no_folder_do_not_include_a_room_above_them(self):
        self.write("CMakeLists.txt", (self.root / "CMakeLists.txt").read_text() + "rdmacomm_layer(connector DEPENDS base verbs)\n")
        self.write("src/connector/cm/good.cc", '#include "connector/socket.h"\n')
        self.assert_clean()
        self.write("src/connector/bad.cc", '#include "connector/cm/cm_id.h"\n')
        self.assert_caught("src/connector/bad.cc:1", "room connector/ includes room connector/cm")

    def test_a_file_outside_of_the_rooms(self):
        self.write("src/softdev/new.cc", "")
        self.assert_caught("src/softdev/new.cc:1", "lies in no room of layer softdev")

    def test_upward_include_by_private_path(self):
        self.write("src/softdev/host/bad.cc", '\n#include "device/private.h"\n')
        self.assert_caught("src/softdev/host/bad.cc:2", "layer softdev includes layer device")

    def test_upward_include_in_angle_brackets(self):
        self.header("memory", "buffer.h")
        self.write("src/softdev/host/bad.cc", "#include <rdmacomm/buffer.h>\n")
        self.assert_caught("layer softdev includes layer memory")

    def test_layer_below_that_is_not_listed(self):
        self.header("softdev", "softdev.h")
        self.write("src/memory/bad.cc", '#include "rdmacomm/softdev.h"\n')
        self.assert_caught("layer memory includes layer softdev")

    def test_a_public_header_includes_no_private_one(self):
        self.private_header("base", "wire.h")
        self.header("base", "bad.h", '#include "base/wire.h"')
        self.assert_caught("include/rdmacomm/bad.h:4", "which is not installed")

    def test_a_public_header_includes_nothing_of_the_verbs(self):
        self.write("src/verbs/good.cc", "#include <infiniband/verbs.h>\n")
        self.assert_clean()
        self.header("verbs", "bad.h", "#include <infiniband/verbs.h>")
        self.assert_caught("include/rdmacomm/bad.h:4", "nothing of the verbs")

    def test_public_headers_lie_flat(self):
        self.write("include/rdmacomm/base/bad.h", GOOD_HEADER.format(layer="base", body=""))
        self.assert_caught("include/rdmacomm/base/bad.h:1", "public headers lie in include/rdmacomm/ itself")

    def test_a_type_that_is_used_without_its_header(self):
        self.private_header("verbs", "api.h", "struct Api {\n  struct Call {};\n};")
        self.private_header("device", "core.h", '#include "verbs/api.h"\nclass Core {\n};')
        self.private_header("memory", "pool.h", '#include "device/core.h"\n#include "verbs/api.h"\nclass Pool {\n};')
        self.write("src/memory/good.cc", '#include "memory/pool.h"\nApi table;  // by a header of its own layer\n')
        self.write("src/memory/own.cc", '#include "device/core.h"\nstruct Api {\n};\nApi mine;\nstd::string s = "Api";\n')
        self.assert_clean()
        self.write("src/memory/bad.cc", '#include "device/core.h"\nCore core;\nApi table;\n')
        self.assert_caught("src/memory/bad.cc:3", "uses Api of layer verbs without including verbs/api.h")

    def test_a_public_type_that_is_used_without_its_header(self):
        self.header("device", "device.h", "class [[nodiscard]] RDMACOMM_API RDMADevice {\n};")
        self.write("src/memory/good.cc", '#include "rdmacomm/device.h"\nRDMADevice* device;\n')
        self.assert_clean()
        self.write("src/memory/bad.cc", "RDMADevice* device;\n")
        self.assert_caught("src/memory/bad.cc:1", "uses RDMADevice of layer device without including rdmacomm/device.h")

    def test_a_type_of_a_layer_above(self):
        self.header("memory", "buffer.h", "struct RDMACOMM_API RDMABuffer {\n};")
        self.write("src/device/bad.cc", "void register_it(RDMABuffer& buffer);\n")
        self.assert_caught("src/device/bad.cc:1", "uses RDMABuffer of layer memory")

    def test_a_type_of_a_room_above(self):
        self.private_header("softdev/tcp", "wire.h", "class TcpWire {\n};")
        self.write("src/softdev/queues/good.cc", "TcpWire* wire;\n")
        self.assert_clean()
        self.write("src/softdev/host/bad.cc", "TcpWire* wire;\n")
        self.assert_caught("src/softdev/host/bad.cc:1", "room softdev/host uses TcpWire of room softdev/tcp")

    def test_a_type_may_be_declared_instead(self):
        self.private_header("verbs", "api.h", "struct Api {\n};")
        self.write("src/memory/good.h", "#pragma once\nclass Api;\nApi& table();\n")
        self.assert_clean()

    def test_a_type_of_a_layer_above_is_not_declared_either(self):
        self.private_header("memory", "pool.h", "class PoolCore {\n};")
        self.write("src/device/bad.h", "#pragma once\nclass PoolCore;\n")
        self.assert_caught("src/device/bad.h:2", "layer device declares PoolCore of layer memory")

    def test_a_type_of_a_room_above_is_not_declared_either(self):
        self.private_header("softdev/tcp", "wire.h", "class TcpWire {\n};")
        self.write("src/softdev/host/bad.h", "#pragma once\nclass TcpWire;\n")
        self.assert_caught("src/softdev/host/bad.h:2", "room softdev/host declares TcpWire of room softdev/tcp")

    def test_includes_that_cannot_be_read(self):
        for line in ("#include HEADER", "#include_next <verbs/api.h>"):
            with self.subTest(line):
                self.write("src/base/bad.cc", line + "\n")
                self.assert_caught("src/base/bad.cc:1", "an include that cannot be checked")

    def test_files_of_other_names(self):
        self.write("src/base/bad.hpp", "")
        self.assert_caught("src/base/bad.hpp:1", "sources are .cc, headers are .h")

    def test_a_public_function_that_returns_a_bare_code(self):
        self.header("base", "good.h", "std::error_code code() const;\nstd::error_code make_error_code(Errc e);")
        self.assert_clean()
        self.header("base", "bad.h", "[[nodiscard]] std::error_code flush_now() const noexcept;")
        self.assert_caught("include/rdmacomm/bad.h:4", "flush_now() returns a bare std::error_code")

    def test_umbrella_header_is_not_for_the_library(self):
        self.write("src/memory/bad.cc", '#include "rdmacomm/rdmacomm.h"\n')
        self.assert_caught("belongs to no layer")

    def test_unknown_layer(self):
        self.write("src/extras/bad.cc", "int x;\n")
        self.assert_caught("extras is no layer")

    def test_printing(self):
        for code in ('std::cout << 1;', 'printf("x");', 'std::printf("x");', 'puts("x");', 'std::fprintf(stderr, "x");',
                     'fputs("x", stdout);', 'std::cerr << 1;', 'perror("x");'):
            with self.subTest(code):
                self.write("src/verbs/bad.cc", code + "\n")
                self.assert_caught("src/verbs/bad.cc:1", "does not print")

    def test_log_cc_writes_to_standard_error_only(self):
        self.write("src/base/log.cc", "std::fwrite(text, 1, size, stderr);\n")
        self.assert_clean()
        self.write("src/base/log.cc", "std::fwrite(text, 1, size, stdout);\n")
        self.assert_caught("src/base/log.cc:1", "does not print")

    def test_glog_outside_of_log_cc(self):
        self.write("src/base/log.cc", "#include <glog/logging.h>\n")
        self.assert_clean()
        self.write("src/verbs/bad.cc", "#include <glog/logging.h>\n")
        self.assert_caught("src/verbs/bad.cc:1", "glog")
        self.write("src/verbs/bad.cc", "")
        self.header("base", "bad.h", "#include <glog/logging.h>")
        self.assert_caught("include/rdmacomm/bad.h:4", "glog")

    def test_errno(self):
        self.private_header("verbs", "call.h", "inline int f() { return errno; }")
        self.write("src/softdev/host/a.cc", "void f() { errno = 3; }\n")
        self.assert_clean()
        self.write("src/memory/bad.cc", "int f() { return errno; }\n")
        self.assert_caught("src/memory/bad.cc:1", "errno")

    def test_a_flag_of_a_program(self):
        self.write("src/softdev/preload/a.cc", 'const char* usage = "softdev-run [--devices=N]";\n')
        self.write("src/memory/a.cc", "int f(int i) { return --i; }  // \"--device\"\n")
        self.assert_clean()
        self.write("src/memory/bad.cc", 'const char* why = "name the right one (--ib-port)";\n')
        self.assert_caught("src/memory/bad.cc:1", "names no flag")

    def test_knowing_the_software_device(self):
        self.write("src/device/a.cc", 'bool f() { return name == "soft0"; }\n')
        self.assert_clean()
        for code in ('if (name == "soft0") f();', "if (device.is_software()) f();"):
            with self.subTest(code):
                self.write("src/memory/bad.cc", code + "\n")
                self.assert_caught("src/memory/bad.cc:1", "soft0")

    def test_cmake_lists_another_dependency(self):
        self.write("CMakeLists.txt", "rdmacomm_layer(base)\nrdmacomm_layer(verbs DEPENDS base memory)\n")
        self.assert_caught("CMakeLists.txt", "layer verbs DEPENDS base memory")

    def test_cmake_misses_a_layer(self):
        self.write("CMakeLists.txt", "# rdmacomm_layer(base)\n")
        self.assert_caught("layer base has files and no rdmacomm_layer line")

    def test_cmake_has_an_unknown_layer(self):
        self.write("CMakeLists.txt", "rdmacomm_layer(base)\nrdmacomm_layer(extras)\n")
        self.assert_caught("layer extras is not in the law")

    def test_header_without_guard(self):
        self.write("include/rdmacomm/bad.h", "// bad.h\n// Layer: base.\n")
        self.assert_caught("no #pragma once")

    def test_header_that_does_not_name_its_layer(self):
        self.write("include/rdmacomm/bad.h", "// bad.h\n#pragma once\n")
        self.assert_caught("include/rdmacomm/bad.h:1", "says no layer")

    def test_umbrella_header_misses_a_header(self):
        self.write("include/rdmacomm/rdmacomm.h", '#include "rdmacomm/result.h"\n')
        self.assert_clean()
        self.header("base", "wire.h")
        self.assert_caught("does not include rdmacomm/wire.h")


if __name__ == "__main__":
    unittest.main()
