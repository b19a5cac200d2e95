"""Stack Exchange dumps → one Document per question thread.

A dump is a Posts.xml or the .7z of a site. Pass 1 reads the file once and writes its posts into runs sorted by
question. Pass 2 joins the runs, one range of questions at a time. So memory does not grow with the file, and finished
shards of either pass are reused.
"""
