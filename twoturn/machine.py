"""Facts of this machine, and its state before and after a cell. Unknown is None, never a guess.

Nothing here tells who owns the machine: no host name, user name, serial number or home path.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

C_LOCALE = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}


def facts() -> dict[str, Any]:
    """What measurements on this machine depend on: chip, memory, OS, build, arch, accelerator."""
    mac = platform.system() == "Darwin"
    arch = platform.machine()
    return {
        "chip": (_said("sysctl", "-n", "machdep.cpu.brand_string") if mac else _linux_chip()),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "cores": psutil.cpu_count(logical=True),
        "os": f"macOS {platform.mac_ver()[0]}" if mac else _linux_name(),
        "os_build": _said("sw_vers", "-buildVersion") if mac else platform.release(),
        "arch": arch,
        "accelerator": "metal" if mac and arch == "arm64" else "cpu",
    }


def state() -> dict[str, Any]:
    """What may disturb a cell right now. Fractions are 0 to 1, sizes are bytes."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return {
        "load_1min": os.getloadavg()[0],
        "memory_available": memory.available,
        "swap_used": swap.used,
        "power_plugged": _plugged(),
        "low_power_mode": _low_power(),
        "memory_pressure": _pressure(),
        "other_gpu_users": None,
    }


def _said(*command: str) -> str | None:
    """One line of a program's answer in the C locale, or None."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=5, env=C_LOCALE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _linux_chip() -> str | None:
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return " ".join(value.split()) or None
    return platform.processor() or None


def _linux_name() -> str:
    fields = dict(
        line.split("=", 1) for line in _read("/etc/os-release").splitlines() if "=" in line
    )
    return fields.get("PRETTY_NAME", "Linux").strip('"')


def _plugged() -> bool | None:
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return None if battery is None else battery.power_plugged


def _low_power() -> bool | None:
    if platform.system() != "Darwin":
        return None
    for line in (_said("pmset", "-g") or "").splitlines():
        words = line.split()
        if words[:1] == ["lowpowermode"]:
            return words[1:2] == ["1"]
    return None


def _pressure() -> float | None:
    """Memory pressure: on Linux the share of the last 10 s that something waited for memory;
    on macOS the kernel's level 1 (normal), 2 (warning) or 4 (critical)."""
    if platform.system() == "Darwin":
        said = _said("sysctl", "-n", "kern.memorystatus_vm_pressure_level")
        return float(said) if said and said.isdigit() else None
    for word in _read("/proc/pressure/memory").split():
        if word.startswith("avg10="):
            return float(word.removeprefix("avg10=")) / 100
    return None
