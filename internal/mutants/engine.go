package main

var engine = []mutant{}
