"""Stack Exchange dumps → one Document per question thread.

A dump is a Posts.xml or the .7z of a site. Pass 1 reads the dump once and writes its posts into sorted files, the runs.
Pass 2 reads one range of question ids at a time from all runs. So memory does not grow with the dump.
"""
