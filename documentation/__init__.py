"""Writers of the reference pages: what the command and the public functions say of themselves, as Markdown.

    python -m documentation          make docs runs it before it builds the site

The pages are committed, so that they can be read without building anything; tests fail where they are not
what the writers would write.
"""
