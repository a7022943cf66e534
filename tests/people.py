"""A path of three people, as tables in text."""

PATH = "ann,bob\nbob,eve\n"
FEATURES = "name,age,size\neve,3,0.5\nann,1,2\nbob,2,1e3\n"
