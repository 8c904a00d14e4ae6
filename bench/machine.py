"""The machine that a table of bench/ was measured on, for the table's heading."""
import os
import platform
import re


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"model name\s*: (.*)", file.read())
    return f"{os.cpu_count()} CPUs ({found.group(1) if found else platform.machine()}), Linux {platform.release()}"
