"""Stack Exchange dumps: Posts.xml, or the site's .7z, to one Document a question thread.

Pass 1 reads the file once and sorts its posts by question into runs; pass 2 joins the runs, a range of questions at a
time. Both are shards of a stage: memory doesn't grow with the file, and finished ones stay.
"""
