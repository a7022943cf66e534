"""Make the project's virtual environment with the Python that runs this script: `python make_venv.py FOLDER`.

If this Python already has a usable torch, the environment uses it and can import all packages of this Python.
`python make_venv.py --probe` makes nothing. It exits with 0 if this Python can make an environment, and prints "torch"
if it has a usable torch, else "plain".
"""

import os
import subprocess
import sys

MINIMUM_PYTHON = (3, 10)
MINIMUM_TORCH = "2.11"


def has_usable_torch():
    script = (
        "import sys, torch\n"
        "numbers = [int(n) for n in torch.__version__.split('+')[0].split('.')[:2]]\n"
        "sys.exit(numbers < [int(n) for n in sys.argv[1].split('.')])"
    )
    # In a new process, because a broken build can crash the process that imports it.
    answer = subprocess.run(
        [sys.executable, "-c", script, MINIMUM_TORCH], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return answer.returncode == 0


def make(folder):
    import sysconfig
    import venv

    keep_torch = has_usable_torch()
    nested = sys.prefix != sys.base_prefix
    venv.create(
        folder, system_site_packages=keep_torch and not nested, with_pip=True, clear=True, symlinks=os.name != "nt"
    )
    if keep_torch and nested:
        # If this Python is itself in a virtual environment, system_site_packages does not include its packages. A .pth
        # file adds them.
        inside = sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder})
        outside = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        with open(os.path.join(inside, "packages_of_outer_environment.pth"), "w", encoding="utf-8") as file:
            file.write("\n".join(outside) + "\n")
    print(f"{folder}: Python {sys.version.split()[0]}{', with the torch installed beside it' if keep_torch else ''}")


def main(arguments):
    if sys.version_info < MINIMUM_PYTHON:
        return 1
    if arguments == ["--probe"]:
        import ensurepip  # noqa: F401  Debian ships it apart from Python
        import venv  # noqa: F401

        print("torch" if has_usable_torch() else "plain")
        return 0
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    make(arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
